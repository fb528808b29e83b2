#include "device/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>

namespace bz::device::cuda {
namespace {

template <class Fn>
Status find(const char* name, Fn* out) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  // 11.2: the first version that has every one of them in the form used here.
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, 11020, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
    cudaGetLastError();
    return {StatusCode::kUnavailable, fmt::format("the NVIDIA driver has no {}; update it, or use --device cpu", name)};
  }
  *out = reinterpret_cast<Fn>(address);
  return ok_status();
}

Status find_all(DriverCalls* d) {
  BZ_TRY(find("cuMemGetAllocationGranularity", &d->granularity));
  BZ_TRY(find("cuMemAddressReserve", &d->reserve));
  BZ_TRY(find("cuMemAddressFree", &d->free_address));
  BZ_TRY(find("cuMemCreate", &d->create));
  BZ_TRY(find("cuMemRelease", &d->release));
  BZ_TRY(find("cuMemMap", &d->map));
  BZ_TRY(find("cuMemUnmap", &d->unmap));
  BZ_TRY(find("cuMemSetAccess", &d->set_access));
  BZ_TRY(find("cuGetErrorString", &d->error_string));
  return ok_status();
}

}  // namespace

Result<const DriverCalls*> driver_calls() {
  static DriverCalls calls{};
  static const Status status = find_all(&calls);
  if (!status.ok()) return status;
  return &calls;
}

}  // namespace bz::device::cuda
