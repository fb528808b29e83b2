// Philox 4x32-10 on the device: the same numbers as ops/cpu/philox.h, keyed by (seed, output index) alone (PAD-9b).
#pragma once

#include <cstdint>

namespace bz::ops::cuda {

__host__ __device__ inline double uniform(uint64_t seed, uint32_t output_index) {
  uint32_t c0 = output_index, c1 = 0, c2 = 0, c3 = 0;
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint64_t bits = (static_cast<uint64_t>(c0) << 32 | c1) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace bz::ops::cuda
