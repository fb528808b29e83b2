// The CPU in the place of a GPU, with those CUDA ops whose kernels are emulated.
#pragma once

#include <gtest/gtest.h>

#include "device/registry.h"
#include "ops/cuda/kernels.h"
#include "ops/op_table.h"

#define BZ_SKIP_WITHOUT_GPU()

namespace bz::test {

inline device::Device* gpu() {
  static const auto device = device::create_device({.name = "cpu"});
  return device->get();
}

inline ops::OpTable cuda_ops() {
  ops::OpTable table{};
  table.copy_blocks = ops::cuda::copy_blocks, table.draft = ops::cuda::draft;
  table.prepare = ops::cuda::prepare, table.zero_rows = ops::cuda::zero_rows;
  return table;
}

}  // namespace bz::test
