// One run of K or V elements, f32 <-> the cache's type. Plain forms.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "base/half.h"

namespace bz::ops::cpu {

inline int32_t kv_element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

inline void store_kv(DType dtype, std::byte* dst, const float* src, int32_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, sizeof(float) * static_cast<size_t>(n));
    return;
  }
  for (int32_t i = 0; i < n; ++i) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
    std::memcpy(dst + i * 2, &bits, 2);
  }
}

inline void load_kv(DType dtype, const std::byte* src, float* dst, int32_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, sizeof(float) * static_cast<size_t>(n));
    return;
  }
  for (int32_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + i * 2, 2);
    dst[i] = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

}  // namespace bz::ops::cpu
