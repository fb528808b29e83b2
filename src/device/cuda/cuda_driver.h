// The driver calls that have no runtime form (virtual memory). Found at run time through the runtime library, so that a
// program that links none of the driver starts on a machine without one.
#pragma once

#include <cuda.h>

#include "base/status.h"

namespace bz::device::cuda {

// Types only: nothing here links the driver.
struct DriverCalls {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_address;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuGetErrorString) error_string;
};

// Found once; an error names the first missing call.
Result<const DriverCalls*> driver_calls();

}  // namespace bz::device::cuda
