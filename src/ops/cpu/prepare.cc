// The first node of every step: real, padded, dummy and warm-up alike (docs/architecture.md, one step).
//
// It derives everything a step reads from the staged slot, the device-resident tables and RowState, through kv/slot.h
// and nothing else, for the whole padded extent (PAD-4). A padded token is (null row, position 0): the same functions
// answer kPadSlot for it (PAD-2, PAD-3).
#include <algorithm>

#include "device/cpu/cpu_stream.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/prepare_step.h"
#include "ops/prepare_rules.h"

namespace bz::ops::cpu {
namespace {

using device::cpu::Worker;
using kv::kNullRow;

// PAD-10: at a gap nothing staged can be trusted: every row becomes empty.
void null_every_row(const PrepareParams& p) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    for (int row = 0; row < p.num_table_rows; ++row) p.widths[g][row] = 0;
  }
}

// Token t joins the list of its class, in every group. The lists begin empty.
void list_token(const StepView& v, int t, const TokenPlace& place) {
  for (int g = 0; g < v.num_groups; ++g) {
    const GroupStep& group = v.groups[g];
    const AttentionToken token = attention_token(group.view, group.first_visible[place.batch_row], t, place.table_row,
                                                 place.position, place.num_computed);
    const auto c = static_cast<int>(attention_class(token, place.query_len));
    group.attention.tokens[c * v.padded_tokens + group.attention.counts->of_class[c]++] = token;
  }
}

// Derives one batch row and its tokens, staged from *staged_token on; returns the first token index after it.
int derive_row_and_tokens(const PrepareParams& p, const StagedSlot& slot, int b, int first_token, int* staged_token,
                          StepError* error) {
  const StepView& v = p.view;
  const StagedRow& staged = slot.rows[b];
  const int tokens_left = v.padded_tokens - std::max(first_token, *staged_token);
  const int query_len = std::clamp(query_len_of(p, staged), 0, std::max(tokens_left, 0));
  const int row = live_table_row(p, staged, query_len, error);
  const bool live = row != kNullRow.value();
  derive_row(p, staged, b, row, query_len);
  if (live) std::copy_n(slot.history + staged.history_start, staged.history_len, p.history.row(row));
  const int num_computed = live ? p.row_state[row].num_computed : 0;
  for (int i = 0; i < query_len; ++i) {
    const int t = first_token + i;
    const TokenPlace place{b, row, query_len, live ? num_computed + i : 0, num_computed};
    derive_token(p, t, token_id(p, row, i, slot.tokens[*staged_token + i]), place);
    list_token(v, t, place);
  }
  *staged_token += staged.query_len;
  return first_token + query_len;
}

// The logits rows: of each live batch row its last num_logits tokens, without gaps.
int derive_logits(const PrepareParams& p, const StagedSlot& slot) {
  const StepView& v = p.view;
  int l = 0;
  writable(v.logits_start)[0] = 0;
  for (int b = 0; b < v.padded_rows; ++b) {
    const int query_len = v.query_start[b + 1] - v.query_start[b];
    const int wanted = v.seq_len[b] > 0 ? std::min({slot.rows[b].num_logits, query_len, v.padded_logits - l}) : 0;
    for (int i = wanted; i > 0; --i) writable(v.logits_token)[l++] = v.query_start[b + 1] - i;
    writable(v.logits_start)[b + 1] = l;
  }
  std::fill(writable(v.logits_token) + l, writable(v.logits_token) + v.padded_logits, -1);
  return l;
}

void prepare_kernel(const PrepareParams& p, Worker& worker) {
  if (worker.index() == 0) prepare_step(p);  // a few microseconds in all: not worth a split
}

}  // namespace

void prepare_step(const PrepareParams& p) {
  const StepView& v = p.view;
  const uint64_t count = ++*p.step_count;
  const StagedSlot& slot = p.ring[(count - 1) % PrepareParams::kRingSlots];
  StepError error = StepError::kNone;
  if (slot.header->sequence != count && !mutated(Mutation::kNoSequenceCheck)) {
    error = StepError::kSequenceGap;
    null_every_row(p);
  } else {
    for (int i = 0; i < slot.header->num_changes; ++i) {
      require_row(p, slot.changes[i]);
      apply_change(p, slot.changes[i]);
    }
  }

  int t = 0, staged_token = 0, missing = 0;  // missing: drafts that there are not
  writable(v.query_start)[0] = 0;
  for (int g = 0; g < v.num_groups; ++g) *v.groups[g].attention.counts = {};
  for (int b = 0; b < v.padded_rows; ++b) {
    t = derive_row_and_tokens(p, slot, b, t, &staged_token, &error);
    writable(v.query_start)[b + 1] = t;
    missing += std::max(slot.rows[b].query_len, 0) - query_len_of(p, slot.rows[b]);
  }
  for (; t < v.padded_tokens; ++t) {
    derive_token(p, t, 0, {});
    list_token(v, t, {});
  }
  const int num_logits = derive_logits(p, slot);

  const bool gap = error == StepError::kSequenceGap;
  *writable(v.num_valid_rows) = kv::NumValidRows(gap ? 0 : slot.header->num_valid_rows);
  *writable(v.num_valid_tokens) = kv::NumValidTokens(gap ? 0 : slot.header->num_valid_tokens - missing);
  *writable(v.num_valid_logits) = NumValidLogits(num_logits);
  *p.error_state = {count, error, gap ? 0 : slot.header->num_valid_rows};
}

void prepare(device::Stream& stream, const PrepareParams& params) {
  BZ_CHECK_LE(params.view.num_groups, kv::kMaxGroups);
  device::cpu::enqueue(stream, "prepare", params, &prepare_kernel);
}

}  // namespace bz::ops::cpu
