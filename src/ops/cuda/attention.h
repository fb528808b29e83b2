// How attention is laid out on the GPU: a pure function of shapes.
#pragma once

#include <cstdint>

namespace bz::ops::cuda {

// Ctas that share one token's positions: enough to fill the GPU, no more than a row is long. invariant: whatever the
// number of tokens, so that sums are split alike (PAD-9b).
int choose_attention_cluster(int32_t tokens, int32_t num_kv_heads, int64_t max_position, bool invariant);

}  // namespace bz::ops::cuda
