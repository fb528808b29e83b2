// What kernels use of CUDA, for the host: a cta's threads are fibers (cta.h), shared memory is the thread's own that
// runs them all. For kernels without tensor cores, clusters, and copies that run by themselves.
#pragma once

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "base/mutation.h"
#include "device/stream.h"
#include "emulated/cta.h"
#include "ops/params.h"

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define threadIdx ::bz::test::thread_index
#define blockIdx ::bz::test::block_index
#define gridDim ::bz::test::grid_size

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct __half2 {
  uint16_t x, y;
};
inline float2 __half22float2(__half2 h) { return {bz::f16_to_f32(h.x), bz::f16_to_f32(h.y)}; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __fdividef(float a, float b) { return a / b; }

template <class T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline int __ffs(int bits) { return std::countr_zero(static_cast<unsigned>(bits)) + 1; }  // of bits that are not 0
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
void atomicMax(T* to, T value) {
  *to = max(*to, value);
}
inline unsigned atomicInc(unsigned* to, unsigned last) {
  const unsigned old = *to;
  *to = old >= last ? 0 : old + 1;
  return old;
}
[[noreturn]] inline void __trap() { std::abort(); }

inline void __syncthreads() { bz::test::meet_cta(); }
inline void __syncwarp() { bz::test::meet_warp(); }

// What another lane of the warp says. All lanes take part.
template <class T>
T heard_from(unsigned lane, T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  const unsigned thread = threadIdx.x;
  std::memcpy(&bz::test::told(thread), &value, sizeof(T));
  bz::test::meet_warp();
  std::memcpy(&value, &bz::test::told(thread / 32 * 32 + lane), sizeof(T));
  bz::test::meet_warp();  // nobody says the next before all have heard
  return value;
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return heard_from(static_cast<unsigned>(lane) % 32, value);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return heard_from(threadIdx.x % 32 ^ static_cast<unsigned>(mask), value);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned offset) {
  const unsigned lane = threadIdx.x % 32;
  return heard_from(lane < offset ? lane : lane - offset, value);
}
inline unsigned __ballot_sync(unsigned, bool yes) {
  const unsigned first = threadIdx.x / 32 * 32;
  bz::test::told(threadIdx.x) = yes;
  bz::test::meet_warp();
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(bz::test::told(first + lane)) << lane;
  bz::test::meet_warp();
  return bits;
}

namespace bz::ops::cuda {

// As ops/cuda/device.cuh and launch.h have them: one kernel after the other.
inline constexpr int kWarp = 32;
inline void wait_for_previous() {}
inline void let_next_start() {}
inline float fast_exp2(float x) { return std::exp2(x); }
template <class T>
T* dynamic_shared() {
  alignas(256) static std::byte memory[size_t{228} << 10];
  return reinterpret_cast<T*>(memory);
}

struct LaunchShape {
  dim3 grid, cta;
  size_t shared_bytes = 0;
  int cluster = 1;
  bool overlap = true;
};
template <class... Params>
void launch(device::Stream&, const char*, void (*kernel)(Params...), const LaunchShape& shape,
            const std::type_identity_t<Params>&... params) {
  BZ_CHECK_EQ(shape.cluster, 1);
  test::run_ctas({shape.grid.x, shape.grid.y, shape.grid.z}, shape.cta.x, [&] { kernel(params...); });
}

}  // namespace bz::ops::cuda
