// What every sampler does after it chose a token: RowState, the row's result, the header (PAD-4: only prepare and
// sample write RowState).
#pragma once

#include "ops/params.h"

namespace bz::ops::cpu {

// A batch row that belongs to a request. Only such a row's state may be written: table row 0 never.
inline bool samples_live(const StepView& view, int64_t row) {
  return row < view.num_valid_rows->value() && view.row_index[row] > kv::kNullRow.value();
}

// The result slot of the current step, as prepare counted it.
inline int result_slot(const SampleParams& p) {
  return static_cast<int>((*p.step_count - 1) % SampleParams::kRingSlots);
}

// Batch row `row` of the step ends with `result` (token kTokenNone: it did not sample).
void finish_row(const SampleParams& p, int64_t row, RowResult result);

// By one worker, once.
void finish_header(const SampleParams& p);

}  // namespace bz::ops::cpu
