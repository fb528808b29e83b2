// Small device functions that every kernel uses.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/params.h"

namespace bz::ops::cuda {

// ---- the order of kernels (launch.h) ----

// Everything the kernels before this one wrote is visible after it; nothing they read may be written before it. Some
// thread of every kernel calls it.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may be put on the multiprocessors now.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The cta's dynamic shared memory, from a multiple of 256 on.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(256) std::byte dynamic_memory[];
  return reinterpret_cast<T*>(dynamic_memory);
}

// ---- arithmetic ----

// 2^x in one instruction; 0 for -inf. Off by two units in the last place at most.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// ---- sums in a fixed order ----

__device__ inline float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}
__device__ inline double warp_sum(double v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// Sum over the cta, the same in every thread. `shared`: [32]. All threads call it.
template <class T>
__device__ inline T cta_sum(T v, T* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x + 31) / 32;
  v = warp_sum(v);
  __syncthreads();
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  return warp_sum(lane < num_warps ? shared[lane] : T{0});
}

// ---- cache elements ----

__device__ inline void store_kv(DType dtype, std::byte* entry, int32_t i, float value) {
  if (dtype == DType::kF32) reinterpret_cast<float*>(entry)[i] = value;
  if (dtype == DType::kF16) reinterpret_cast<__half*>(entry)[i] = __float2half_rn(value);
  if (dtype == DType::kBF16) reinterpret_cast<__nv_bfloat16*>(entry)[i] = __float2bfloat16_rn(value);
}

}  // namespace bz::ops::cuda
