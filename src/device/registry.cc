#include "device/registry.h"

#include "device/cpu/cpu_device.h"

namespace bz::device {

Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options) {
  if (options.name == "cpu") return cpu::create_cpu_device(options.num_threads);
  return invalid_argument("--device {}: no such device in this build; use cpu", options.name);
}

}  // namespace bz::device
