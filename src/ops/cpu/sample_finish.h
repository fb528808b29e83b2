// What every sampler does after it chose a token: RowState, the row's result, the header (PAD-4: only prepare and
// sample write RowState).
#pragma once

#include "base/mutation.h"
#include "ops/params.h"

namespace bz::ops::cpu {

// A batch row that belongs to a request. Only such a row's state may be written: table row 0 never.
inline bool samples_live(const StepView& view, int64_t row) {
  return row < view.num_valid_rows->value() && view.row_index[row] > kv::kNullRow.value();
}

// The batch row samples in this step, and the model has said something about its last token.
inline bool row_samples(const StepView& view, const int32_t* sample_row, int64_t row) {
  return samples_live(view, row) && sample_row[row] != 0 && view.logits_start[row + 1] > view.logits_start[row];
}

// Which output of its request the row samples: with the seed, the key of its random numbers (PAD-9b).
inline uint32_t output_index(const SampleParams& p, int64_t row) {
  const uint32_t place = mutated(Mutation::kRandomByPlace) ? static_cast<uint32_t>(row) : 0;
  return p.sampling[row].first_output + p.row_state[p.view.row_index[row]].num_sampled + place;
}

// The staging and result slot of the current step, as prepare counted it.
inline int ring_slot(const uint64_t* step_count) {
  return static_cast<int>((*step_count - 1) % PrepareParams::kRingSlots);
}

// Batch row `row` of the step ends with `result` (token kTokenNone: it did not sample).
void finish_row(const SampleParams& p, int64_t row, RowResult result);

// By one worker, once.
void finish_header(const SampleParams& p);

}  // namespace bz::ops::cpu
