// Chooses a backend by its name: "cpu", "cuda:N", "null".
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace bz::device {

struct DeviceOptions {
  std::string name = "cpu";
  int num_threads = 0;  // CPU: 0 = one per core this process may use
};

Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options);

}  // namespace bz::device
