// The null device's ops: prepare and sample keep the step's books as everywhere, block copies copy; all others do
// nothing, not even a node. Tokens are made from (seed, output index), so that whoever knows a request knows its
// answer.
#pragma once

#include "ops/op_table.h"

namespace bz::ops::null {

const OpTable& table();

// The token that a request's output `index` will be.
int32_t token_of(uint64_t seed, uint32_t index, int32_t vocab_size);

}  // namespace bz::ops::null
