// simulate(): one run of the real engine (scheduler, cache manager, prefix index, staging, graphs, prepare) on the null
// device, with made-up traffic and a virtual clock. Everything is a function of the seed: the cache's kinds and size,
// the limits, the arrivals. After each step everything that can be known is checked; a failure is (seed, step).
#pragma once

#include <cstdint>
#include <string>

namespace bz::sim {

struct SimReport {
  std::string failure;  // empty: all went well
  int32_t step = 0;     // the last one, or the one that failed
  std::string setting;  // what the seed chose, in words

  int64_t requests = 0;  // taken by the engine
  int64_t refused = 0;   // too large for the cache
  int64_t forks = 0;     // further answers to a request's prompt
  int64_t tokens = 0;    // delivered
  int64_t cancelled = 0;
  int64_t preempted = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t draft_tokens = 0;     // verified
  int64_t accepted_tokens = 0;  // of them

  SimReport& operator+=(const SimReport& other);
};

// `steps` steps with arrivals, then as many as it takes until everything has ended.
SimReport simulate(uint64_t seed, int32_t steps);

// The seed and step that run now, for whoever reports an abort.
struct SimPosition {
  uint64_t seed = 0;
  int32_t step = 0;
};
SimPosition current_position();

}  // namespace bz::sim
