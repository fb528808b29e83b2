// Worker: one thread's part in running an op. An op's kernel runs on several threads at once (SPMD): each claims chunks
// of the work, and may meet the others at a barrier. Which thread gets which chunk never changes a result (PAD-9b).
//
// Worker 0 is in every op. The others join an op when they come in time and are not waited for when they do not: on a
// busy machine an op must not wait until the scheduler runs a thread that has nothing left to do.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace bz::device::cpu {

// One worker's share of a parallel_for.
struct alignas(64) Share {
  // What is taken of it: chunks from its front in the low half (by the worker), from its back in the
  // high half (by thieves). One fetch_add claims a chunk: the claim holds if both halves together were less than the
  // share. One word per phase; the phase that ends is cleared.
  std::atomic<uint64_t> taken[2] = {0, 0};
};

struct Team {
  explicit Team(int num_workers) : size(num_workers), shares(static_cast<size_t>(num_workers)) {}

  // Clears the claims of a phase that has ended.
  void clear(int phase);

  const int size;
  std::vector<Share> shares;  // [size]
  // The current op: its number in the high half, then whether it still takes workers in, then how many are in it.
  alignas(64) std::atomic<uint64_t> op{0};
  alignas(64) std::atomic<int> arrived{0};  // at the barrier
  alignas(64) std::atomic<uint32_t> generation{0};
};

class Worker {
 public:
  Worker(Team* team, int index) : team_(team), index_(index) {}

  int index() const { return index_; }
  // The most workers that an op can have.
  int count() const { return team_->size; }

  // Waits until every worker that is in this op is here; nobody joins it any more. What they wrote before is visible.
  void barrier();

  // Calls fn(begin, end) for disjoint ranges that cover [0, n), at most `grain` long. Each worker walks its own
  // contiguous share (what hardware prefetchers want of weights), then takes from the back of others' shares.
  // REQUIRES: at most one call between two barriers (an op ends with one).
  template <class Fn>
  void parallel_for(int64_t n, int64_t grain, Fn&& fn) {
    BZ_CHECK_MSG(!claimed_, "two parallel_for without a barrier between them");
    claimed_ = true;
    const int64_t chunks = (n + grain - 1) / grain;
    for (int k = 0; k < team_->size; ++k) {
      const int owner = (index_ + k) % team_->size;
      const int64_t first = chunks * owner / team_->size;
      const int64_t last = chunks * (owner + 1) / team_->size;
      for (int64_t i; (i = claim(owner, last - first)) >= 0;) {
        const int64_t begin = (first + i) * grain;
        fn(begin, std::min(begin + grain, n));
      }
    }
  }

 private:
  friend class ThreadPool;

  // The next chunk of `owner`'s share of `size` chunks, from the front of the own, the back of another's; -1: none
  // left.
  int64_t claim(int owner, int64_t size) {
    constexpr uint64_t kFront = 1;
    constexpr uint64_t kBack = uint64_t{1} << 32;
    std::atomic<uint64_t>& taken = team_->shares[static_cast<size_t>(owner)].taken[phase_];
    const uint64_t old = taken.fetch_add(owner == index_ ? kFront : kBack, std::memory_order_relaxed);
    const auto front = static_cast<int64_t>(old % kBack);
    const auto back = static_cast<int64_t>(old / kBack);
    if (front + back >= size) return -1;
    return owner == index_ ? front : size - 1 - back;
  }

  void begin_op() {
    phase_ = 0;
    claimed_ = false;
  }

  Team* team_;
  int index_;
  int phase_ = 0;
  bool claimed_ = false;
};

}  // namespace bz::device::cpu
