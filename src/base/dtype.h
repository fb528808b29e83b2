// DType: element types of tensors and caches, block-quantised GGUF types included.
#pragma once

#include <cstdint>
#include <string_view>

namespace bz {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI8, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

// A type is stored in blocks of `block_elems` consecutive elements of a row, `block_bytes` each (1 for plain types).
struct DTypeInfo {
  std::string_view name;
  int32_t block_elems;
  int32_t block_bytes;
};

constexpr DTypeInfo dtype_info(DType t) {
  switch (t) {
    case DType::kF32: return {"f32", 1, 4};
    case DType::kF16: return {"f16", 1, 2};
    case DType::kBF16: return {"bf16", 1, 2};
    case DType::kI32: return {"i32", 1, 4};
    case DType::kI8: return {"i8", 1, 1};
    case DType::kQ4_0: return {"q4_0", 32, 18};  // f16 d; 16 bytes of nibbles: d * (q - 8)
    case DType::kQ4_1: return {"q4_1", 32, 20};  // f16 d, f16 m; 16 bytes of nibbles: d * q + m
    case DType::kQ5_0: return {"q5_0", 32, 22};
    case DType::kQ5_1: return {"q5_1", 32, 24};
    case DType::kQ8_0: return {"q8_0", 32, 34};  // f16 d; 32 int8: d * q
    case DType::kQ4_K: return {"q4_K", 256, 144};
    case DType::kQ5_K: return {"q5_K", 256, 176};
    case DType::kQ6_K: return {"q6_K", 256, 210};
  }
  return {"?", 1, 0};
}

// Bytes of a row of n elements. REQUIRES: n % block_elems == 0.
constexpr int64_t row_bytes(DType t, int64_t n) {
  const DTypeInfo info = dtype_info(t);
  return n / info.block_elems * info.block_bytes;
}

}  // namespace bz
