// The one launch wrapper: every kernel is launched here, with its configuration checked and its errors named.
//
// Programmatic dependent launch: a kernel may start while the one before it runs. Every kernel therefore calls
// wait_for_previous() (device.cuh) before it writes anything or reads what other kernels of the step write: so the
// order of any two kernels of a stream is kept, through the ones between them. Most call let_next_start() right after
// it, some before, which has several kernels fetch their weights at once.
//
// A kernel that is not ours (cuBLASLt's, split_linear.h) stands in that chain as well: launched without the attribute
// it begins when all before it have finished, and what follows it begins when it has, unless it lets that start earlier
// itself; then it waits before it touches memory, as ours do.
//
// Read before the wait may be weights, and what earlier steps or prepare wrote: prepare lets nobody start before it has
// finished, so no later kernel of its step can.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/cuda_stream.h"

namespace bz::ops::cuda {

inline constexpr int kWarp = 32;

struct LaunchShape {
  dim3 grid;
  dim3 cta;
  size_t shared_bytes = 0;  // dynamic
  int cluster = 1;          // ctas along x that share their memory; see cluster_or_one()
  bool overlap = true;      // may start before the kernel before it has finished
};

// Copies into shared memory that run by themselves (bulk_copy.cuh), and much of it.
inline bool has_bulk_copies(device::Stream& stream) {
  return static_cast<device::cuda::CudaStream&>(stream).has_clusters();
}

// The size of a cluster: what is wanted, or 1 where there are none.
inline int cluster_or_one(device::Stream& stream, int wanted) {
  return static_cast<device::cuda::CudaStream&>(stream).has_clusters() ? wanted : 1;
}

inline const device::cuda::GpuLimits& limits_of(device::Stream& stream) {
  return static_cast<device::cuda::CudaStream&>(stream).limits();
}

template <class... Params>
void launch(device::Stream& stream, const char* op, void (*kernel)(Params...), const LaunchShape& shape,
            const Params&... params) {
  auto& s = static_cast<device::cuda::CudaStream&>(stream);
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  s.use_device();
  constexpr size_t kDefaultShared = 32 * 1024;  // 48 KiB with the kernel's static part
  if (shape.shared_bytes > kDefaultShared) {
    BZ_CUDA_CHECK_AT(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        s.site(op));
  }
  if (shape.cluster > 8) {
    BZ_CUDA_CHECK_AT(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), s.site(op));
  }
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.cta;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = s.handle();
  config.attrs = attributes;
  if (shape.overlap && s.has_clusters()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  BZ_CUDA_CHECK_AT(cudaLaunchKernelEx(&config, kernel, params...), s.site(op));
  s.op_enqueued(op);
}

}  // namespace bz::ops::cuda
