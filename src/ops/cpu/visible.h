// Which positions a token of this step may see. The only place where attention reads lengths (PAD-5, PAD-7).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/math.h"
#include "base/mutation.h"
#include "ops/shape_checks.h"

namespace bz::ops::cpu {

// [begin, end); empty for a token that sees nothing.
struct VisibleRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// May the tokens of batch row `row` read the cache at all? -1: the token belongs to no row.
inline bool row_is_live(const StepView& view, int32_t row) {
  return row >= 0 && row < view.num_valid_rows->value() && view.row_index[row] > kv::kNullRow.value() &&
         view.seq_len[row] > 0;
}

// REQUIRES: row_is_live(view, row); `token` belongs to it. Causal: up to the token's own position, and never past what
// the cache holds; from where the group's window begins, for this token and for its row.
inline VisibleRange visible_range(const StepView& view, int32_t group, int32_t row, int64_t token) {
  const GroupStep& g = view.groups[group];
  const int32_t position = view.positions[token];
  const int32_t begin = std::max(g.first_visible[row], kv::first_visible(g.view, position));
  if (mutated(Mutation::kReadsWholeBlocks)) return {begin, round_up(position + 1, g.view.block_size)};
  return {begin, std::min(position + 1, view.seq_len[row])};
}

}  // namespace bz::ops::cpu
