#pragma once

#include <memory>

#include "device/device.h"

namespace bz::device::cuda {

// Fails in one line when there is no driver, no such GPU, or no code for it in this build.
Result<std::unique_ptr<Device>> create_cuda_device(int index);

}  // namespace bz::device::cuda
