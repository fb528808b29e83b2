// How attention is laid out on the GPU: which kernels have which tokens of a step. Sizes alone decide, since a recorded
// graph serves any mix of rows; which tokens there are of a class is read on the device (ops/attention_class.h).
#pragma once

#include <cstdint>

#include "device/cuda/gpu_limits.h"
#include "device/stream.h"
#include "ops/params.h"

namespace bz::ops::cuda {

struct AttentionPlan {
  // attention_prefill.cuh has the prompts' tokens. It reads the cache once for a tile of tokens, but walks a row's
  // positions in one cta.
  bool prefill = false;
  // attention_many.cuh has the other tokens, with so many ctas; 0: attention_few.cuh has all tokens.
  int32_t many_ctas = 0;
  // attention_few.cuh: ctas that share one token's positions, at most, and how many positions are worth one.
  int32_t cluster = 1, positions_log2 = 6;
};

// Ctas that share one token's positions: enough to fill the GPU once, no more than a row is long. invariant: whatever
// the number of tokens, so that sums are split alike (PAD-9b).
int choose_attention_cluster(int32_t tokens, int32_t num_kv_heads, int64_t max_position, int32_t num_sms,
                             bool invariant);

// tokens, rows: padded. can_prefill: attention_prefill.cuh has such heads and such a cache.
AttentionPlan plan_attention(int32_t tokens, int32_t rows, int32_t num_kv_heads, int64_t max_position,
                             const device::cuda::GpuLimits& gpu, bool can_prefill, bool invariant);

// The op as attention_many.cuh does it, with so many ctas, and attention_prefill.cuh beside it if that can: for tests.
void attention_in_ctas(device::Stream& stream, const AttentionParams& p, int32_t ctas, bool prefill);
// The op with a cluster size of the caller's, a power of two up to 16: for the choice's benchmark.
void attention_in_clusters(device::Stream& stream, const AttentionParams& p, int cluster);

}  // namespace bz::ops::cuda
