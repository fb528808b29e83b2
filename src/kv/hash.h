// Hasher: a deterministic 64-bit mix over integers, to tell states of a search apart. Not for hostile input.
#pragma once

#include <cstdint>

namespace bz::kv {

class Hasher {
 public:
  void add(uint64_t v) {
    state_ = (state_ ^ v) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 32;
  }
  uint64_t value() const { return state_ * 0xd6e8feb86659fd93u ^ state_ >> 29; }

 private:
  uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace bz::kv
