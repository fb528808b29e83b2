#include "ops/cpu/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace bz::ops::cpu {
namespace {

constexpr int kBlock = 32;

// GGUF rows are aligned to 2 bytes only.
template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
float load_f16(const std::byte* p) { return f16_to_f32(load<uint16_t>(p)); }

// Low nibbles are elements 0..15, high nibbles 16..31.
void nibbles(const std::byte* qs, float d, float base, float* out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int q = std::to_integer<int>(qs[i]);
    out[i] = d * static_cast<float>(q & 15) + base;
    out[i + kBlock / 2] = d * static_cast<float>(q >> 4) + base;
  }
}

void q4_0(const std::byte* block, float* out) {
  const float d = load_f16(block);
  nibbles(block + 2, d, -8.0f * d, out);
}

void q4_1(const std::byte* block, float* out) { nibbles(block + 4, load_f16(block), load_f16(block + 2), out); }

void q8_0(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kBlock; ++i) out[i] = d * static_cast<float>(load<int8_t>(block + 2 + i));
}

template <void (*Fn)(const std::byte*, float*)>
void blocks(const std::byte* row, int64_t begin, int64_t count, int64_t block_bytes, float* out) {
  const std::byte* p = row + begin / kBlock * block_bytes;
  for (int64_t i = 0; i < count; i += kBlock, p += block_bytes) Fn(p, out + i);
}

}  // namespace

void dequantize(DType dtype, const std::byte* row, int64_t begin, int64_t count, float* out) {
  const int64_t block_bytes = dtype_info(dtype).block_bytes;
  switch (dtype) {
    case DType::kF32: std::memcpy(out, row + begin * 4, static_cast<size_t>(count) * 4); return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = load_f16(row + (begin + i) * 2);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load<uint16_t>(row + (begin + i) * 2));
      return;
    case DType::kQ4_0: return blocks<q4_0>(row, begin, count, block_bytes, out);
    case DType::kQ4_1: return blocks<q4_1>(row, begin, count, block_bytes, out);
    case DType::kQ8_0: return blocks<q8_0>(row, begin, count, block_bytes, out);
    default: BZ_CHECK_MSG(false, "weight type {} is not supported", dtype_info(dtype).name);
  }
}

}  // namespace bz::ops::cpu
