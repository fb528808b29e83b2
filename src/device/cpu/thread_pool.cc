#include "device/cpu/thread_pool.h"

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bz::device::cpu {
namespace {

// Spins before giving the core away: long enough to cover the gap between two ops, short enough not to starve a thread
// of our own on a machine with fewer free cores than workers.
constexpr int kSpins = 4000;
constexpr int kYields = 200;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Returns once `value` differs from `old`.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

void Worker::barrier() {
  claimed_ = false;
  if (team_->size == 1) return;
  const uint32_t generation = team_->generation.load(std::memory_order_relaxed);
  if (team_->arrived.fetch_add(1, std::memory_order_acq_rel) == team_->size - 1) {
    team_->next_chunk[phase_].store(0, std::memory_order_relaxed);  // nobody claims from it any more
    team_->arrived.store(0, std::memory_order_relaxed);
    team_->generation.store(generation + 1, std::memory_order_release);
    team_->generation.notify_all();
  } else {
    wait_while_equal(team_->generation, generation);
  }
  phase_ ^= 1;
}

ThreadPool::ThreadPool(int num_threads) : caller_(&team_, 0) {
  BZ_CHECK_GE(num_threads, 1);
  team_.size = num_threads;
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { thread_main(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run_erased(Job job, void* context) {
  job_ = job;
  context_ = context;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  job(context, caller_);
  caller_.barrier();  // every worker has finished
}

void ThreadPool::thread_main(int index) {
  Worker worker(&team_, index);
  uint32_t seen = 0;
  for (;;) {
    wait_while_equal(epoch_, seen);
    seen += 1;
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(context_, worker);
    worker.barrier();
  }
}

int default_num_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

}  // namespace bz::device::cpu
