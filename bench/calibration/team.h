// Timing of the same work on several threads at once: from the moment all are ready until the last is done.
#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace bz::bench {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The shortest of `passes` runs of fn(thread index) on `threads` threads; starting them does not count.
// The best, not the median: a limit is what the machine can do when nobody else is in the way.
template <class Fn>
double best_seconds(int threads, int passes, Fn&& fn) {
  std::barrier ready(threads);
  double best = 1e300;
  const auto work = [&](int index) {
    for (int pass = 0; pass < passes; ++pass) {
      ready.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      fn(index);
      ready.arrive_and_wait();
      if (index == 0) best = std::min(best, seconds_since(start));
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  return best;
}

}  // namespace bz::bench
