// GGUF weight rows -> f32, element for element as the format defines them. The one place that knows the formats in
// scalar form; the SIMD kernels are tested against it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace bz::ops::cpu {

// Weight types that matmul and embed can read. A new one needs a case in dequantize() and, to be fast, in
// weight_blocks.h.
bool supports_weight(DType dtype);

// out[0..count) = elements [begin, begin + count) of the row that starts at `row`.
// REQUIRES: supports_weight(dtype); begin and count are multiples of the type's block_elems.
void dequantize(DType dtype, const std::byte* row, int64_t begin, int64_t count, float* out);

}  // namespace bz::ops::cpu
