// The table of CUDA ops. Every launcher checks shapes, then enqueues its kernels through launch.h.
#pragma once

#include "ops/op_table.h"

namespace bz::ops::cuda {

// batch_invariant: no bit of a row depends on its batch mates (PAD-9b).
const OpTable& table(bool batch_invariant);

}  // namespace bz::ops::cuda
