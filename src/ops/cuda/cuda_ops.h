// The table of CUDA ops. Every launcher checks shapes, then enqueues its kernels through launch.h.
#pragma once

#include "ops/op_table.h"

namespace bz::ops::cuda {

const OpTable& table();

}  // namespace bz::ops::cuda
