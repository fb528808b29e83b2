// A CUDA call that fails once the device is up is a fault: one line that names the step, the op or graph and the error,
// then exit 1 (fail-stop: a kernel fault kills the CUDA context, so nothing can go on). Free of fmt: nvcc reads it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace bz::device::cuda {

// Where the stream was when a call failed.
struct FaultSite {
  uint64_t step = 0;
  const char* what = "";  // an op, "graph", "copy"
  int32_t layer = -1;
};

// Prints one line and exits 1 (2 if memory is all that is missing), without running destructors: they would call into a
// dead context.
[[noreturn]] void cuda_fault(cudaError_t error, const FaultSite& site, const char* file, int line);

}  // namespace bz::device::cuda

#define BZ_CUDA_CHECK_AT(call, site)                                         \
  do {                                                                       \
    const cudaError_t bz_error_ = (call);                                    \
    if (bz_error_ != cudaSuccess) [[unlikely]]                               \
      ::bz::device::cuda::cuda_fault(bz_error_, (site), __FILE__, __LINE__); \
  } while (0)
#define BZ_CUDA_CHECK(call) BZ_CUDA_CHECK_AT(call, (::bz::device::cuda::FaultSite{0, #call, -1}))
