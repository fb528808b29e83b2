// GGUF weight rows -> f32, element for element as the format defines them. The one place that knows the formats in
// scalar form; the SIMD kernels are tested against it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace bz::ops::cpu {

// out[0..count) = elements [begin, begin + count) of the row that starts at `row`. A new type needs a case here, in
// supports_weight() and, to be fast, in weight_blocks.h.
// REQUIRES: supports_weight(dtype) (ops/shape_checks.h); begin and count are multiples of the type's block_elems.
void dequantize(DType dtype, const std::byte* row, int64_t begin, int64_t count, float* out);

}  // namespace bz::ops::cpu
