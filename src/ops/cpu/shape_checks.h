// Shape checks: what each launcher requires of its parameters, checked once, when the op is enqueued or recorded.
// Values in tensors are not read here: during a capture they are not there yet.
#pragma once

#include "ops/params.h"

namespace bz::ops::cpu {

void check(const EmbedParams& p);
void check(const RmsNormParams& p);
void check(const MatmulParams& p);
void check(const RopeTableParams& p);
void check(const RopeStoreParams& p);
void check(const AttentionParams& p);
void check(const SiluMulParams& p);
void check(const GatherRowsParams& p);
void check(const SampleParams& p);

}  // namespace bz::ops::cpu
