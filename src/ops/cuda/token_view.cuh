// Lengths: here and in prepare's lists (ops/attention_class.h) alone CUDA attention reads them (PAD-5, PAD-7);
// ops/cpu/visible.h says the same.
#pragma once

#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

// What a token may see, and of which row. Its loads are two deep and otherwise side by side: a live token's wait for
// the block table is the shorter, and a padded token learns soon that it is one.
struct TokenView {
  bool live;
  int row;      // batch row
  int queries;  // tokens of the row in this step
  Visible sees;

  __device__ TokenView(const StepView& view, int group, int token) {
    const GroupStep& g = view.groups[group];
    row = view.token_row[token];
    const int position = view.positions[token];
    const int valid_rows = view.num_valid_rows->value();
    const int r = max(row, 0);  // there is a row 0, and what it holds is not used
    const int index = view.row_index[r], seq_len = view.seq_len[r], first = g.first_visible[r];
    queries = view.query_start[r + 1] - view.query_start[r];
    live = row >= 0 && row < valid_rows && index > kv::kNullRow.value() && seq_len > 0;
    sees = {index, max(first, kv::first_visible(g.view, position)), min(position + 1, seq_len), seq_len - queries};
  }
};

}  // namespace bz::ops::cuda
