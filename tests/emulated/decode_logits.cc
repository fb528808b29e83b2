#include "ops/cuda/decode_logits.h"

namespace bz::ops::cuda {

// ops/cuda/checks.cc asks this of an op that is not emulated.
bool supports_decode_logits(const NormLogitsParams&) { return false; }

}  // namespace bz::ops::cuda
