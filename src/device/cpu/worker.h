// Worker: one thread's part in running an op. An op's kernel runs on every thread at once (SPMD): it claims chunks of
// its work, and may meet the other threads at a barrier. Which thread gets which chunk never changes a result (PAD-9b).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace bz::device::cpu {

// Shared by the workers of one pool.
struct Team {
  int size = 1;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int64_t> next_chunk[2] = {0, 0};
};

class Worker {
 public:
  Worker(Team* team, int index) : team_(team), index_(index) {}

  int index() const { return index_; }
  int count() const { return team_->size; }

  // Waits until every worker of the team is here. Everything written before is visible after.
  void barrier();

  // Calls fn(begin, end) for disjoint ranges that cover [0, n), `grain` long, claimed by whoever is free.
  // REQUIRES: at most one call between two barriers (the runner puts a barrier after every op).
  template <class Fn>
  void parallel_for(int64_t n, int64_t grain, Fn&& fn) {
    BZ_CHECK_MSG(!claimed_, "two parallel_for without a barrier between them");
    claimed_ = true;
    if (team_->size == 1) {
      for (int64_t begin = 0; begin < n; begin += grain) fn(begin, std::min(begin + grain, n));
      return;
    }
    std::atomic<int64_t>& next = team_->next_chunk[phase_];
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= n) return;
      fn(begin, std::min(begin + grain, n));
    }
  }

 private:
  Team* team_;
  int index_;
  int phase_ = 0;
  bool claimed_ = false;
};

}  // namespace bz::device::cpu
