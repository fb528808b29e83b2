// Random: splitmix64. A run is a function of its seed on every machine, which <random>'s distributions are not.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace bz::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x243f6a8885a308d3u) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // In [low, high].
  int32_t between(int32_t low, int32_t high) {
    BZ_CHECK_LE(low, high);
    return low + static_cast<int32_t>(next() % (static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(int32_t percent) { return between(1, 100) <= percent; }
  // Small numbers often, large ones sometimes: [low, high].
  int32_t skewed(int32_t low, int32_t high) { return between(low, between(low, high)); }

 private:
  uint64_t state_;
};

}  // namespace bz::sim
