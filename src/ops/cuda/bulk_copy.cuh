// Copies from memory into the shared memory of a cta that run by themselves (cp.async.bulk), and the barriers that tell
// when they have arrived (mbarrier, PTX ISA). Addresses and sizes are multiples of 16 bytes.
#pragma once

#include <cstdint>

namespace bz::ops::cuda {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// One arrival completes a phase, once the bytes it expects are there.
__device__ inline void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
// After barrier_init and before the copies: by the thread that did it; then those who wait there and it meet.
__device__ inline void barriers_are_ready() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// The arrival: this many bytes make the phase whole.
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#endif
}
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (done == 0) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  }
#endif
}
__device__ inline void copy_async(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#endif
}

}  // namespace bz::ops::cuda
