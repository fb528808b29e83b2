// What every sampler of every backend does after it chose its tokens: which drafts are accepted, RowState, the row's
// results, the header (PAD-4: only prepare and sample write RowState).
//
// Speculation (Leviathan et al. 2023, with the draft accepted iff it is the token that sampling gives): a row samples
// after each of its last n tokens, the drafts among them. Its outputs are the tokens sampled up to the first one that
// is not the draft behind it, so they are the tokens of a decode without drafts, one by one.
#pragma once

#include "base/mutation.h"
#include "ops/params.h"

namespace bz::ops {

// A batch row that belongs to a request. Only such a row's state may be written: table row 0 never.
BZ_HD inline bool samples_live(const StepView& view, int64_t row) {
  return row < view.num_valid_rows->value() && view.row_index[row] > kv::kNullRow.value();
}

// After how many of its last tokens the batch row samples in this step; 0: it does not.
BZ_HD inline int32_t num_samples(const StepView& view, const int32_t* sample_row, int64_t row) {
  if (!samples_live(view, row)) return 0;
  const int32_t logits = view.logits_start[row + 1] - view.logits_start[row];
  return sample_row[row] < logits ? sample_row[row] : logits;
}

// The draft behind sample i of n of a batch row: accepted iff it equals what sample i gave. REQUIRES: i + 1 < n.
BZ_HD inline int32_t draft_after(const StepView& view, int64_t row, int32_t i, int32_t n) {
  return view.token_ids[view.query_start[row + 1] - n + i + 1];
}

// Which output of its request sample i of the row is: with the seed, the key of its random numbers (PAD-9b).
BZ_HD inline uint32_t output_index(const SampleParams& p, int64_t row, int32_t i) {
  const auto place = static_cast<uint32_t>(mutated(Mutation::kRandomByPlace) ? row + i : i);
  return p.sampling[row].first_output + p.row_state[p.view.row_index[row]].num_sampled + place;
}

// The staging and result slot of the current step, as prepare counted it.
BZ_HD inline int ring_slot(const uint64_t* step_count) {
  return static_cast<int>((*step_count - 1) % PrepareParams::kRingSlots);
}

// Batch row `row` of the step sampled samples[0, n); n 0: it did not. Samples behind a draft that is not accepted are
// not read. By one thread a row.
BZ_HD inline void finish_row(const SampleParams& p, int64_t row, const RowResult* samples, int32_t n) {
  const StepView& view = p.view;
  const int32_t per_row = view.samples_per_row;
  RowResult* results = p.results[ring_slot(p.step_count)] + row * per_row;
  p.logits_ends[ring_slot(p.step_count)][row] = view.logits_start[row + 1];
  int32_t accepted = 0;
  if (samples_live(view, row)) {
    const int32_t table_row = view.row_index[row];
    RowState& state = p.row_state[table_row];
    state.num_computed += view.query_start[row + 1] - view.query_start[row] - n;
    for (bool more = n > 0; more; ++accepted) {
      const RowResult& sample = samples[accepted];
      results[accepted] = sample;
      state.num_computed += 1;
      if (sample.token >= 0) {
        state.last_token = sample.token;
        p.history.set(table_row, state.num_computed, sample.token);
        state.num_sampled += 1;
      }
      more = accepted + 1 < n && sample.token == draft_after(view, row, accepted, n);
    }
    state.num_accepted = accepted > 0 ? accepted : 1;
    if (mutated(Mutation::kRejectedDraftsStay)) state.num_computed += n - accepted;
  }
  for (int32_t i = accepted; i < per_row; ++i) results[i] = {i < n ? kTokenRejected : kTokenNone, 0.0f};
}

// By one thread, once.
BZ_HD inline void finish_header(const SampleParams& p) {
  StepResultHeader header = *p.error_state;
  header.num_valid_rows = p.view.num_valid_rows->value();
  *p.result_headers[ring_slot(p.step_count)] = header;
}

}  // namespace bz::ops
