// How attention is laid out on the GPU.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "ops/params.h"

namespace bz::ops::cuda {

// Ctas that share one token's positions: enough to fill the GPU once, no more than a row is long. invariant: whatever
// the number of tokens, so that sums are split alike (PAD-9b).
int choose_attention_cluster(int32_t tokens, int32_t num_kv_heads, int64_t max_position, bool invariant);

// The op with a cluster size of the caller's, a power of two up to 16: for the choice's benchmark.
void attention_in_clusters(device::Stream& stream, const AttentionParams& p, int cluster);

}  // namespace bz::ops::cuda
