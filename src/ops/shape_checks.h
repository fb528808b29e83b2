// Shape checks: what the launchers of every backend require of their parameters, checked once, when the op is enqueued
// or recorded. Values in tensors are not read here: during a capture they are not there yet.
#pragma once

#include "ops/params.h"

namespace bz::ops {

inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxHeadsPerKv = 16;

// Types that matmul and embed compute with, and that a cache may have: the same on every backend.
bool supports_weight(DType dtype);
bool supports_kv(DType dtype);
// Heads that attention can have on every backend: REQUIRES num_kv_heads >= 1.
bool supports_heads(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim);

void check_shapes(const CopyBlocksParams& p);
void check_shapes(const EmbedParams& p);
void check_shapes(const RmsNormParams& p);
void check_shapes(const MatmulParams& p);
void check_shapes(const RopeTableParams& p);
void check_shapes(const RopeStoreParams& p);
void check_shapes(const AttentionParams& p);
void check_shapes(const SiluMulParams& p);
void check_shapes(const GatherRowsParams& p);
void check_shapes(const AdjustLogitsParams& p);
void check_shapes(const SampleParams& p);
void check_shapes(const ZeroRowsParams& p);
void check_shapes(const LogprobsParams& p);
void check_shapes(const DraftParams& p);

}  // namespace bz::ops
