// prepare's lists of tokens for attention (ops/attention_class.h), by the whole cta at once.
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/prepare_rules.h"

namespace bz::ops::cuda {

inline constexpr int kPrepareThreads = 1024;

// Inclusive prefix sum over the cta.
template <class T>
__device__ T cta_scan(T v) {
  __shared__ T warp_total[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const T below = __shfl_up_sync(0xffffffffu, v, static_cast<unsigned>(offset));
    if (lane >= offset) v += below;
  }
  __syncthreads();
  if (lane == 31) warp_total[warp] = v;
  __syncthreads();
  for (int w = 0; w < warp; ++w) v += warp_total[w];
  return v;
}

// The cta's tokens, t each (-1: none), join the group's lists of their classes. counts: shared, of those before them.
__device__ inline void list_tokens(const StepView& v, const GroupStep& group, int t, const TokenPlace& place,
                                   int32_t* counts) {
  constexpr int kBits = 16;  // of a class in the sum: kPrepareThreads fits
  static_assert(kPrepareThreads < 1 << kBits && kBits * kNumAttentionClasses <= 64);
  const AttentionToken token = attention_token(group.view, group.first_visible[place.batch_row], t, place.table_row,
                                               place.position, place.num_computed);
  const auto c = static_cast<int>(attention_class(token, place.query_len));
  const uint64_t end = cta_scan(t < 0 ? uint64_t{0} : uint64_t{1} << (kBits * c));
  const auto of = [&](int k) { return static_cast<int>(end >> (kBits * k) & ((1 << kBits) - 1)); };
  if (t >= 0) group.attention.tokens[c * v.padded_tokens + counts[c] + of(c) - 1] = token;
  __syncthreads();
  if (threadIdx.x != kPrepareThreads - 1) return;
  for (int k = 0; k < kNumAttentionClasses; ++k) counts[k] += of(k);
}

}  // namespace bz::ops::cuda
