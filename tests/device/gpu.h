// The GPU that tests run on, and its ops.
#pragma once

#include <gtest/gtest.h>

#include "device/registry.h"
#include "ops/op_table.h"

namespace bz::test {

// The GPU, or nullptr where there is none (the tests then skip).
inline device::Device* gpu() {
  static const auto device = device::create_device({.name = "cuda:0"});
  return device.ok() ? device->get() : nullptr;
}
#define BZ_SKIP_WITHOUT_GPU() \
  if (gpu() == nullptr) GTEST_SKIP() << "no GPU"

inline const ops::OpTable& cuda_ops(bool batch_invariant = false) {
  return **ops::op_table_for(device::DeviceKind::kCuda, batch_invariant);
}

}  // namespace bz::test
