#include "ops/cpu/sample_finish.h"

namespace bz::ops::cpu {

void finish_row(const SampleParams& p, int64_t row, RowResult result) {
  const StepView& view = p.view;
  if (samples_live(view, row)) {
    RowState& state = p.row_state[view.row_index[row]];
    state.num_computed += view.query_start[row + 1] - view.query_start[row];
    state.num_accepted = 1;
    if (result.token >= 0) {
      state.last_token = result.token;
      p.history.set(view.row_index[row], state.num_computed, result.token);
      state.num_sampled += 1;
    }
  }
  p.results[ring_slot(p.step_count)][row] = result;
}

void finish_header(const SampleParams& p) {
  StepResultHeader& header = *p.result_headers[ring_slot(p.step_count)];
  header = *p.error_state;
  header.num_valid_rows = p.view.num_valid_rows->value();
}

}  // namespace bz::ops::cpu
