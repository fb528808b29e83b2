// Which logits decode_logits can make.
#pragma once

#include "ops/params.h"

namespace bz::ops::cuda {

// Of one row, from Q8_0 weights whose rows are short enough for shared memory.
bool supports_decode_logits(const NormLogitsParams& params);

}  // namespace bz::ops::cuda
