// The CPU's SlabMemory: mmap and mprotect at 4 KiB, block 0 in a memfd so that it has a second, read-only mapping.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/slab_memory.h"

namespace bz::device::cpu {

inline constexpr int64_t kCpuGranule = 4096;

Result<std::unique_ptr<SlabMemory>> create_cpu_slabs(const SlabRequest& request);

}  // namespace bz::device::cpu
