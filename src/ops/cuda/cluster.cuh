// The ctas of a cluster: starting together, and sending each other floats. Where there are no clusters (before sm_90)
// nothing here is called: clusters have one cta.
#pragma once

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

__device__ inline uint32_t cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// The barrier of a cluster, in halves: after the wait, every cta has started, and what it did to its barriers of bytes
// before it arrived is seen. No other memory is ordered: that costs half a microsecond.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// A barrier of bytes, in this cta's shared memory: complete when so many bytes were sent to it. One thread, before
// cluster_arrive().
__device__ inline void expect_bytes(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  const uint32_t at = shared_address(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void wait_for_bytes(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier))
        : "memory");
  }
#endif
}
// value into cta `rank`'s copy of *to, and four bytes to its copy of *barrier.
__device__ inline void send(float* to, float value, uint64_t* barrier, int rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t at, remote_barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(at), "f"(value),
               "r"(remote_barrier)
               : "memory");
#endif
}

}  // namespace bz::ops::cuda
