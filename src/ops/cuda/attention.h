// How attention is laid out on the GPU.
//
// Two kernels share the tokens of a step by rows: attention_prefill.cuh has rows with many tokens, attention_kernel.cuh
// those with few. Sizes alone decide whether there can be such rows, since a recorded graph serves any mix of them;
// which rows they are is read on the device.
#pragma once

#include <cstdint>

#include "device/stream.h"
#include "ops/params.h"

namespace bz::ops::cuda {

// Tokens of a row from which on attention_prefill.cuh has it. It reads the cache once for a tile of tokens, but walks a
// row's positions in one cta, where attention_kernel.cuh has a cta or more for every token.
inline constexpr int32_t kMinPrefillQueries = 32;
inline constexpr int32_t kAllQueries = INT32_MAX;

// What attention_kernel.cuh does of a step.
struct AttentionShare {
  int32_t cluster = 1;                // ctas that share one token's positions
  int32_t max_queries = kAllQueries;  // rows with more tokens are not its own; less than all: nor are empty rows
  int32_t by_row = 0;                 // cta z has token z % max_queries of row z / max_queries; else token z
  int32_t num_tokens = 0;             // of its grid
};
struct AttentionPlan {
  bool prefill = false;
  AttentionShare share;
};

// Ctas that share one token's positions: enough to fill the GPU once, no more than a row is long. invariant: whatever
// the number of tokens, so that sums are split alike (PAD-9b).
int choose_attention_cluster(int32_t tokens, int32_t num_kv_heads, int64_t max_position, bool invariant);

// tokens, rows: padded. can_prefill: attention_prefill.cuh has such heads and such a cache.
AttentionPlan plan_attention(int32_t tokens, int32_t rows, int32_t num_kv_heads, int64_t max_position, bool can_prefill,
                             bool invariant);

// The op with a cluster size of the caller's, a power of two up to 16: for the choice's benchmark.
void attention_in_clusters(device::Stream& stream, const AttentionParams& p, int cluster);

}  // namespace bz::ops::cuda
