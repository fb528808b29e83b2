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

// The shortest of `passes` runs of fn(thread index) on `threads` threads; starting them does not count. A run lasts
// from when the first thread begins to when the last one ends: the one that leaves the barrier late must not shorten
// it. The best, not the median: a limit is what the machine can do when nobody else is in the way.
template <class Fn>
double best_seconds(int threads, int passes, Fn&& fn) {
  using Clock = std::chrono::steady_clock;
  std::barrier ready(threads);
  std::vector<Clock::time_point> begins(static_cast<size_t>(threads)), ends(static_cast<size_t>(threads));
  double best = 1e300;
  const auto work = [&](int index) {
    for (int pass = 0; pass < passes; ++pass) {
      ready.arrive_and_wait();
      begins[static_cast<size_t>(index)] = Clock::now();
      fn(index);
      ends[static_cast<size_t>(index)] = Clock::now();
      ready.arrive_and_wait();
      if (index != 0) continue;
      const auto whole = *std::ranges::max_element(ends) - *std::ranges::min_element(begins);
      best = std::min(best, std::chrono::duration<double>(whole).count());
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  return best;
}

}  // namespace bz::bench
