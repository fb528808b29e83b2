// What kernels use of CUDA, for the host: a cta's threads are fibers (cta.h), shared memory is the thread's own that
// runs them all. For kernels without tensor cores, copies that run by themselves, and other types than C++ has.
#pragma once

#include <bit>
#include <cstdlib>

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

struct uint4 {
  unsigned x, y, z, w;
};

template <class T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
void atomicMax(T* to, T value) {
  *to = max(*to, value);
}
inline int __ffs(int bits) { return std::countr_zero(static_cast<unsigned>(bits)) + 1; }  // of bits that are not 0
[[noreturn]] inline void __trap() { std::abort(); }

inline void __syncthreads() { bz::test::meet_cta(); }
// Of all lanes.
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned offset) {
  const unsigned thread = threadIdx.x;
  bz::test::told(thread) = static_cast<uint64_t>(value);
  bz::test::meet_warp();
  const T got = thread % 32 < offset ? value : static_cast<T>(bz::test::told(thread - offset));
  bz::test::meet_warp();  // nobody says the next before all have heard
  return got;
}
inline unsigned __ballot_sync(unsigned, bool yes) {
  const unsigned thread = threadIdx.x;
  bz::test::told(thread) = yes;
  bz::test::meet_warp();
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    bits |= static_cast<unsigned>(bz::test::told(thread / 32 * 32 + lane)) << lane;
  bz::test::meet_warp();
  return bits;
}

namespace bz::ops::cuda {

// As ops/cuda/device.cuh and launch.h have them: one kernel after the other.
inline constexpr int kWarp = 32;
inline void wait_for_previous() {}
inline void let_next_start() {}
template <class T>
T* dynamic_shared() {
  static T memory[(size_t{64} << 10) / sizeof(T)];
  return memory;
}

struct LaunchShape {
  unsigned grid, cta;
  size_t shared_bytes = 0;
  int cluster = 1;
  bool overlap = true;
};
template <class... Params>
void launch(device::Stream&, const char*, void (*kernel)(Params...), const LaunchShape& shape,
            const std::type_identity_t<Params>&... params) {
  test::run_ctas(shape.grid, shape.cta, [&] { kernel(params...); });
}

}  // namespace bz::ops::cuda
