// Errors of CUDA calls while starting up: the outside world's, a Status.
#pragma once

#include "base/status.h"
#include "device/cuda/cuda_fault.h"

namespace bz::device::cuda {

// ok, or a Status that says what was tried and what to do, which a caller may know better: "".
Status cuda_status(cudaError_t error, const char* tried, const char* way_out);

}  // namespace bz::device::cuda
