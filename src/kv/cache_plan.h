// CachePlan: what one step does to the cache, as a plain value. It is the cache's half of a StepPlan, and what the C
// API exports. Reused from step to step: the vectors keep their capacity, steady steps allocate nothing (ENG-3).
#pragma once

#include <cstdint>
#include <vector>

#include "kv/types.h"

namespace bz::kv {

// A row of the batch and the tokens this step computes for it.
struct RowSpan {
  RowId row;
  int32_t start;      // upper bound of the row's tokens in the cache before this step (exact without speculation)
  int32_t query_len;  // tokens of this row in this step

  int32_t max_seq_len() const { return start + query_len; }  // what blocks are reserved for
  bool operator==(const RowSpan&) const = default;
};

struct CachePlan {
  uint64_t sequence = 0;             // 1, 2, 3, ... without a gap (PAD-10)
  std::vector<TableChange> changes;  // in order: a row's later change wins
  std::vector<BlockCopy> copies;
  std::vector<RowSpan> rows;  // empty: a change plan, or a dummy step

  bool operator==(const CachePlan&) const = default;
};

}  // namespace bz::kv
