#include "device/cpu/thread_pool.h"

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bz::device::cpu {
namespace {

// Spins before sleeping: covers the gap between two ops, and is short enough not to take a core from others for long.
constexpr int kSpins = 4000;

// Team::op
constexpr uint64_t kMembers = 0xffff;
constexpr uint64_t kOpen = uint64_t{1} << 16;
constexpr uint64_t kNextOp = uint64_t{1} << 32;

// The operating system may take a thread off its core anywhere; tests do so where it could matter.
inline void yield_point() {
#if defined(BZ_YIELD_POINTS)
  for (int i = 0; i < 4; ++i) sched_yield();
#endif
}

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until done(value); returns the value for which it was: a second load could see a later one.
template <class T, class Done>
T wait_until(const std::atomic<T>& value, Done&& done) {
  for (int i = 0; i < kSpins; ++i) {
    const T seen = value.load(std::memory_order_acquire);
    if (done(seen)) return seen;
    relax();
  }
  for (;;) {
    const T seen = value.load(std::memory_order_acquire);
    if (done(seen)) return seen;
    yield_point();
    value.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace

void Team::clear(int phase) {
  for (Share& share : shares) share.taken[phase].store(0, std::memory_order_relaxed);
}

void Worker::barrier() {
  claimed_ = false;
  const uint32_t generation = team_->generation.load(std::memory_order_relaxed);
  const auto members = static_cast<int>(team_->op.fetch_and(~kOpen, std::memory_order_acq_rel) & kMembers);
  if (team_->arrived.fetch_add(1, std::memory_order_acq_rel) == members - 1) {
    yield_point();
    team_->clear(phase_);
    team_->arrived.store(0, std::memory_order_relaxed);
    // Not a store: notify_all looks whether somebody waits, and that load must not come before the new value.
    team_->generation.fetch_add(1, std::memory_order_seq_cst);
    team_->generation.notify_all();
  } else {
    wait_until(team_->generation, [&](uint32_t g) { return g != generation; });
  }
  phase_ ^= 1;
}

ThreadPool::ThreadPool(int num_threads) : team_(num_threads), caller_(&team_, 0) {
  BZ_CHECK_GE(num_threads, 1);
  BZ_CHECK_LE(static_cast<uint64_t>(num_threads), kMembers);
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { thread_main(i); });
  } catch (...) {
    end_threads();
    throw;
  }
}

ThreadPool::~ThreadPool() { end_threads(); }

void ThreadPool::end_threads() {
  stop_.store(true, std::memory_order_relaxed);
  team_.op.fetch_add(kNextOp, std::memory_order_release);
  team_.op.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run_op(size_t i) {
  op_index_ = i;
  open_op();
  op_(context_, i, caller_);
  close_op();
}

void ThreadPool::open_op() {
  caller_.begin_op();
  const uint64_t number = team_.op.load(std::memory_order_relaxed) / kNextOp + 1;
  team_.op.store(number * kNextOp | kOpen | 1, std::memory_order_release);
  team_.op.notify_all();
}

// Waits for the workers that are in the op.
void ThreadPool::close_op() {
  team_.op.fetch_and(~kOpen, std::memory_order_relaxed);
  wait_until(team_.op, [](uint64_t op) { return (op & kMembers) == 1; });
  team_.clear(caller_.phase_);
}

bool ThreadPool::join_op(uint64_t number) {
  uint64_t op = team_.op.load(std::memory_order_acquire);
  while (op / kNextOp == number && (op & kOpen) != 0) {
    if (team_.op.compare_exchange_weak(op, op + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::leave_op() {
  team_.op.fetch_sub(1, std::memory_order_release);
  team_.op.notify_all();
}

void ThreadPool::thread_main(int index) {
  Worker worker(&team_, index);
  uint64_t seen = 0;  // the last op this worker looked at
  for (;;) {
    seen = wait_until(team_.op, [&](uint64_t op) { return op / kNextOp != seen; }) / kNextOp;
    yield_point();
    if (stop_.load(std::memory_order_relaxed)) return;
    yield_point();
    if (!join_op(seen)) continue;
    yield_point();
    worker.begin_op();
    op_(context_, op_index_, worker);
    leave_op();
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
