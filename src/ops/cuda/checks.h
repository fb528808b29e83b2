// What the CUDA kernels require beyond the shapes that every backend checks (ops/cpu/shape_checks.h).
#pragma once

#include "ops/params.h"

namespace bz::ops::cuda {

bool supports_weight(DType dtype);

void check(const PrepareParams& p);
void check(const EmbedParams& p);
void check(const RmsNormParams& p);
void check(const MatmulParams& p);
void check(const RopeTableParams& p);
void check(const RopeStoreParams& p);
void check(const AttentionParams& p);
void check(const NormQkvParams& p);
void check(const NormGateUpParams& p);
void check(const SiluMulParams& p);
void check(const GatherRowsParams& p);
void check(const SampleParams& p);

}  // namespace bz::ops::cuda
