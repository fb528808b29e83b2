// Prompt lookup: what followed the latest earlier place where a row's last tokens stand.
#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/sample_finish.h"

namespace bz::ops::cpu::reference {
namespace {

// How many tokens before tokens[a] and before tokens[b] agree, at most `most`. REQUIRES: a, b >= most.
int32_t agreement(const int32_t* tokens, int32_t a, int32_t b, int32_t most) {
  int32_t n = 0;
  while (n < most && tokens[a - n - 1] == tokens[b - n - 1]) ++n;
  return n;
}

// Where the draft of a row of `len` tokens begins: the latest place behind the longest match; len: none.
int32_t find_draft(const int32_t* tokens, int32_t len) {
  int32_t best = DraftParams::kMinNgram - 1, place = len;
  for (int32_t end = len - 1; end >= DraftParams::kMinNgram && best < DraftParams::kMaxNgram; --end) {
    const int32_t n = agreement(tokens, end, len, std::min(end, DraftParams::kMaxNgram));
    if (n > best) best = n, place = end;
  }
  return place;
}

}  // namespace

void draft(const DraftParams& p, Worker& worker) {
  worker.parallel_for(p.view.padded_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (num_samples(p.view, p.sample_row, b) == 0) continue;
      const int32_t row = p.view.row_index[b];
      const int32_t len = std::min(p.row_state[row].num_computed + 1, p.history.stride);  // the last token among them
      const int32_t* tokens = p.history.row(row);
      const int32_t place = find_draft(tokens, len);
      RowDraft& draft = p.drafts[row];
      draft.count = std::min(p.max_tokens, len - place);
      std::copy_n(tokens + place, draft.count, draft.tokens);
    }
  });
}

}  // namespace bz::ops::cpu::reference
