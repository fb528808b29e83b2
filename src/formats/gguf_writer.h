// GgufWriter: builds a GGUF v3 file in memory. For tests, fuzzing and small converters.
//
//   GgufWriter w;
//   w.add("general.architecture", "llama").add("llama.block_count", uint32_t{2});
//   w.add_tensor("token_embd.weight", {64, 256}, embedding);            // f32 values
//   w.add_tensor("blk.0.attn_q.weight", {64, 64}, DType::kQ4_0, blocks);  // bytes as stored
//   std::vector<std::byte> file = w.bytes();
//
// Keys and tensors are written in the order added. Nothing is checked, so that tests can make bad files too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "formats/gguf_types.h"

namespace bz::formats {

class GgufWriter {
 public:
  GgufWriter& add(std::string_view key, std::string_view value);
  GgufWriter& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  GgufWriter& add(std::string_view key, bool value);
  GgufWriter& add(std::string_view key, uint32_t value);
  GgufWriter& add(std::string_view key, int32_t value);
  GgufWriter& add(std::string_view key, uint64_t value);
  GgufWriter& add(std::string_view key, float value);
  GgufWriter& add(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& add(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& add(std::string_view key, const std::vector<float>& values);
  // Any type at all, its value given as the bytes that follow the type.
  GgufWriter& add_raw(std::string_view key, uint32_t type, std::span<const std::byte> value);

  // dims in ggml's order: the row length first.
  GgufWriter& add_tensor(std::string_view name, std::initializer_list<int64_t> dims, std::span<const float> values);
  GgufWriter& add_tensor(std::string_view name, std::initializer_list<int64_t> dims, DType dtype,
                         std::span<const std::byte> data);
  // A tensor info with a type number and offset of one's own (no data is added): for bad files.
  GgufWriter& add_tensor_info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type_id,
                              uint64_t offset);

  // Tensor data starts at multiples of this. Also written as general.alignment unless it is the default, 32.
  GgufWriter& set_alignment(uint32_t alignment);

  std::vector<std::byte> bytes() const;
  Status write(const std::string& path) const;

 private:
  void begin_entry(std::string_view key, GgufType type);

  uint32_t alignment_ = 32;
  uint64_t num_metadata_ = 0;
  uint64_t num_tensors_ = 0;
  std::string metadata_;      // serialised entries
  std::string tensor_infos_;  // serialised infos
  std::string data_;
};

}  // namespace bz::formats
