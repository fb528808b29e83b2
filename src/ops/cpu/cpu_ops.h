// The CPU backend's tables of ops, and the one launcher that all of them share.
#pragma once

#include "base/status.h"
#include "ops/op_table.h"

namespace bz::ops::cpu {

// prepare.cc: integer work of a few microseconds, the same for every instruction set.
void prepare(device::Stream& stream, const PrepareParams& params);

// The table of an instruction set; nullptr if this build or this machine lacks it.
// "reference", "avx2", "avx512-vnni".
const OpTable* table_by_name(std::string_view isa);

// The fastest table of this machine.
const OpTable* fastest_table();

}  // namespace bz::ops::cpu
