// The null device computes nothing: for simulation, scheduler and load tests, and to time everything around a model.
// Its buffers are host memory (prepare and sample keep the step's books there); its slabs have no bytes at all.
#pragma once

#include <memory>

#include "device/device.h"

namespace bz::device::null {

std::unique_ptr<Device> create_null_device();

}  // namespace bz::device::null
