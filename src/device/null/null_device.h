// The null device computes nothing: for simulation, scheduler and load tests, and to time everything around a model.
// Its buffers and slabs are host memory: prepare and sample keep the step's books there, block copies move bytes, and
// nothing else touches them.
#pragma once

#include <memory>

#include "device/device.h"

namespace bz::device::null {

std::unique_ptr<Device> create_null_device();

}  // namespace bz::device::null
