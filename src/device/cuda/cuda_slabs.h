// Slabs in device memory, behind the guard (device/slab_memory.h): one virtual range, block 0 in granules of its own.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/slab_memory.h"

namespace bz::device::cuda {

Result<std::unique_ptr<SlabMemory>> create_cuda_slabs(int device_index, const SlabRequest& request);

}  // namespace bz::device::cuda
