// The first node of a step as plain host code, by one thread: what the CPU's and the null device's prepare run.
#pragma once

#include "ops/params.h"

namespace bz::ops::cpu {

void prepare_step(const PrepareParams& params);

}  // namespace bz::ops::cpu
