// What the CUDA kernels require beyond the shapes that every backend checks (ops/shape_checks.h).
#pragma once

#include "ops/params.h"

namespace bz::ops::cuda {

// Elements: weights.cuh walks K in runs of this many.
inline constexpr int32_t kWeightRowUnit = 32;

// Of the heads that every backend can have, those that attention is compiled for here.
bool supports_heads(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim);

void check(const PrepareParams& p);
void check(const CopyBlocksParams& p);
void check(const EmbedParams& p);
void check(const RmsNormParams& p);
void check(const MatmulParams& p);
void check(const RopeTableParams& p);
void check(const RopeStoreParams& p);
void check(const AttentionParams& p);
void check(const NormQkvParams& p);
void check(const NormGateUpParams& p);
void check(const NormLogitsParams& p);
void check(const SiluMulParams& p);
void check(const GatherRowsParams& p);
void check(const AdjustLogitsParams& p);
void check(const SampleParams& p);
void check(const LogprobsParams& p);
void check(const DraftParams& p);
void check_greedy(const SampleParams& p);

}  // namespace bz::ops::cuda
