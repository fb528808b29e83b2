// The table of CUDA ops. Every launcher checks shapes, then enqueues its kernels through launch.h.
#pragma once

#include "ops/op_table.h"

namespace bz::ops::cuda {

// batch_invariant: no bit of a row depends on its batch mates (PAD-9b). Looks for cuBLASLt (cublas_lt.h), which may be
// missing; an error: BLOCKZERO_CUBLASLT names something else.
Result<const OpTable*> table(bool batch_invariant);

}  // namespace bz::ops::cuda
