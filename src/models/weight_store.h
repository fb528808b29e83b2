// WeightStore: where a model's weights lie for the ops. On the CPU the file's own bytes, mapped in place; on another
// device one copy of the file's tensor data, made at load.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "device/device.h"
#include "formats/gguf.h"

namespace bz::models {

class WeightStore {
 public:
  // The file outlives the store where weights stay in place; the device outlives it always. random: a copy is made of
  // random weights instead of the file's bytes (random_weights.h).
  static Result<WeightStore> create(device::Device& device, const formats::GgufFile& file, bool random = false);

  // The address that ops use for bytes of the file's tensor data.
  const std::byte* address(const std::byte* in_file) const { return base_ + (in_file - file_base_); }
  bool in_place() const { return base_ == file_base_; }

 private:
  WeightStore(const std::byte* file_base, const std::byte* base, device::Buffer copy)
      : file_base_(file_base), base_(base), copy_(std::move(copy)) {}

  const std::byte* file_base_;
  const std::byte* base_;
  device::Buffer copy_;
};

}  // namespace bz::models
