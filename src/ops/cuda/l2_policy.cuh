// What the L2 shall keep (createpolicy, PTX ISA). The cache streams through the L2 and takes everything else with it.
// What a kernel writes and the next one reads may be marked to stay: then it never goes to memory, where a write among
// reads costs several times its bytes.
#pragma once

#include <cstdint>

namespace bz::ops::cuda {

inline constexpr int64_t kKeptBytes = int64_t{8} << 20;  // of one buffer, at most: a small part of any L2

// bytes: of the buffer. Cheap: make it where it is used, rather than hold it in registers.
__device__ inline uint64_t kept_policy(int64_t bytes) {
  uint64_t keep, normal;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return bytes <= kKeptBytes ? keep : normal;
}
// Into memory that the kernel does not read, so the compiler may move its loads across.
__device__ inline void store(float* to, float value, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(to), "f"(value), "l"(policy));
}
__device__ inline void store(float4* to, float4 v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w), "l"(policy));
}

}  // namespace bz::ops::cuda
