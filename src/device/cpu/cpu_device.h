// The CPU as a device: ordinary memory, one thread pool.
#pragma once

#include <memory>

#include "device/device.h"

namespace bz::device::cpu {

// num_threads 0: one per core this process may use.
Result<std::unique_ptr<Device>> create_cpu_device(int num_threads);

}  // namespace bz::device::cpu
