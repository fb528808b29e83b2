#include "device/cuda/cuda_check.h"

#include <cstdio>
#include <cstdlib>

#include "device/fault_hook.h"

namespace bz::device::cuda {

void cuda_fault(cudaError_t error, const FaultSite& site, const char* file, int line) {
  std::fflush(stdout);
  if (error == cudaErrorMemoryAllocation) {  // nothing is wrong with the step: no record of it
    std::fprintf(stderr, "blockzero: error: %s: the GPU has no memory left to run it; use a smaller --kv-cache-bytes\n",
                 site.what);
    std::_Exit(2);
  }
  const bool illegal = error == cudaErrorIllegalAddress;
  std::fprintf(stderr, "fault on the device: step %llu, %s", static_cast<unsigned long long>(site.step), site.what);
  if (site.layer >= 0) std::fprintf(stderr, ", layer %d", site.layer);
  std::fprintf(stderr, ": %s (%s)%s [%s:%d]\n", cudaGetErrorName(error), cudaGetErrorString(error),
               illegal ? "; an access outside the cache or to the guarded null block" : "", file, line);
  std::fflush(stderr);
  call_fault_hook(site.step);
  std::_Exit(1);
}

Status cuda_status(cudaError_t error, const char* tried, const char* way_out) {
  if (error == cudaSuccess) return ok_status();
  cudaGetLastError();  // not sticky: the next call starts clean
  const std::string then = *way_out == '\0' ? "" : fmt::format("; {}", way_out);
  if (error == cudaErrorMemoryAllocation) return resource_exhausted("{}: not enough device memory{}", tried, then);
  return {StatusCode::kUnavailable, fmt::format("{}: {}{}", tried, cudaGetErrorString(error), then)};
}

}  // namespace bz::device::cuda
