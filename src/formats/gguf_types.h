// GGUF's vocabulary: the types of metadata values and of tensors, and what one tensor and one value look like.
//
// Names and numbers are those of the public GGUF specification (ggml's docs/gguf.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "base/dtype.h"

namespace bz::formats {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "u32", "string", ...; "?" for a number that is no type.
std::string_view gguf_type_name(GgufType type);
// Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown numbers.
size_t gguf_scalar_bytes(GgufType type);

// An array stays where it is in the file; GgufFile's typed getters read it.
struct GgufArray {
  GgufType element_type = GgufType::kUint8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;  // the elements as stored, checked to hold `count` of them
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  // Every unsigned type widens to uint64_t, every signed one to int64_t, both floats to double.
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> data;
};

struct GgufMetadata {
  std::string_view key;
  GgufValue value;
  uint64_t offset = 0;  // of the entry in the file, for messages
};

// One of ggml's tensor types, whether or not this engine can compute with it.
struct GgufTensorType {
  uint32_t id;
  std::string_view name;
  int32_t block_elems;
  int32_t block_bytes;
  std::optional<DType> dtype;  // set when the engine knows the type
};
// nullptr for a number that no known version of ggml uses.
const GgufTensorType* find_gguf_tensor_type(uint32_t id);
const GgufTensorType& gguf_tensor_type(DType dtype);

struct GgufTensor {
  std::string_view name;
  int num_dims = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // ggml's order: dims[0] runs fastest (a row's length); unused ones are 1
  uint32_t type_id = 0;
  std::optional<DType> dtype;       // empty: a type that the engine cannot use
  const std::byte* data = nullptr;  // inside the mapped file; aligned as the file says, relative to its start
  int64_t num_bytes = 0;            // 0 when the type's number is unknown
  uint64_t offset = 0;              // of the data in the file

  int64_t num_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t row_length() const { return dims[0]; }
  int64_t num_rows() const { return dims[1] * dims[2] * dims[3]; }
};

}  // namespace bz::formats
