// The first node of every step: real, padded, dummy and warm-up alike (docs/architecture.md, one step).
//
// It derives everything a step reads from the staged slot, the device-resident tables and RowState, through kv/slot.h
// and nothing else, for the whole padded extent (PAD-4). A padded token is (null row, position 0): the same functions
// answer kPadSlot for it (PAD-2, PAD-3).
#include <algorithm>

#include "device/cpu/cpu_stream.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/prepare_step.h"

namespace bz::ops::cpu {
namespace {

using device::cpu::Worker;
using kv::ChangeKind;
using kv::kNullRow;
using kv::RowId;

// Writes through the const pointers that everyone else reads.
template <class T>
T* writable(const T* p) {
  return const_cast<T*>(p);
}

void apply_change(const PrepareParams& p, const kv::TableChange& c) {
  BZ_CHECK_GT(c.row.value(), kNullRow.value());  // the null row is immutable
  BZ_CHECK_LT(c.row.value(), p.num_table_rows);
  const int row = c.row.value();
  if (c.kind == ChangeKind::kRowStart) {
    p.row_state[row] = {static_cast<int32_t>(c.value), 0, 1, 0};
    p.drafts[row].count = 0;
    return;
  }
  const int g = c.group.value();
  BZ_CHECK_LT(g, p.view.num_groups);
  const kv::GroupView& view = p.view.groups[g].view;
  switch (c.kind) {
    case ChangeKind::kBlock:
      BZ_CHECK_LT(c.column, view.max_blocks_per_row);
      p.tables[g][static_cast<int64_t>(row) * view.max_blocks_per_row + c.column] = kv::BlockId(c.value);
      break;
    case ChangeKind::kWidth: p.widths[g][row] = static_cast<int32_t>(c.value); break;
    case ChangeKind::kFirst: p.firsts[g][row] = static_cast<int32_t>(c.value); break;
    case ChangeKind::kRowStart: break;
  }
}

// PAD-10: at a gap nothing staged can be trusted: every row becomes empty.
void null_every_row(const PrepareParams& p) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    for (int row = 0; row < p.num_table_rows; ++row) p.widths[g][row] = 0;
  }
}

bool is_empty(const PrepareParams& p, int row) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    if (p.view.groups[g].view.width[row] != 0) return false;
  }
  return true;
}

// How many tokens the row computes: it ends where its drafts do.
int query_len_of(const PrepareParams& p, const StagedRow& staged) {
  if (staged.sample <= 1 || staged.row_index >= p.num_table_rows) return staged.query_len;
  return std::min(staged.query_len, 1 + p.drafts[staged.row_index].count);
}

// The table row a batch row may use: the null row unless its staged row is live and within what the plan reserved.
int live_table_row(const PrepareParams& p, const StagedRow& staged, int query_len, StepError* error) {
  const int row = staged.row_index;
  if (row <= kNullRow.value() || row >= p.num_table_rows || staged.query_len <= 0 || is_empty(p, row)) {
    return kNullRow.value();
  }
  if (p.row_state[row].num_computed + query_len > staged.max_seq_len && !mutated(Mutation::kNoReserveCheck)) {
    *error = StepError::kPastReserved;
    return kNullRow.value();
  }
  return row;
}

// seq_end: the row's length after this step.
void derive_token(const PrepareParams& p, int t, int batch_row, int table_row, int position, int seq_end,
                  int32_t token) {
  const StepView& v = p.view;
  const bool live = table_row != kNullRow.value();
  writable(v.token_ids)[t] = live ? token : 0;
  writable(v.positions)[t] = position;
  writable(v.token_row)[t] = live ? batch_row : -1;
  if (live) p.history.set(table_row, position, token);
  if (!live && mutated(Mutation::kZeroFilledSlots)) return;
  for (int g = 0; g < v.num_groups; ++g)
    v.groups[g].slots[t] = kv::write_slot(v.groups[g].view, RowId(table_row), position, seq_end);
}

// Token t of a batch row with query_len tokens in this step joins the list of its class, in every group. table_row: the
// null row for padding and nulled rows. The lists begin empty.
void list_token(const StepView& v, int t, int b, int table_row, int query_len, int position, int num_computed) {
  for (int g = 0; g < v.num_groups; ++g) {
    const GroupStep& group = v.groups[g];
    const AttentionToken token =
        attention_token(group.view, group.first_visible[b], t, table_row, position, num_computed);
    const auto c = static_cast<int>(attention_class(token, query_len));
    group.attention.tokens[c * v.padded_tokens + group.attention.counts->of_class[c]++] = token;
  }
}

// What a batch row sees and owns in every group: where its queries begin to look, and its states (STATE-1).
void derive_groups(const StepView& v, int b, int table_row, int num_computed) {
  for (int g = 0; g < v.num_groups; ++g) {
    const GroupStep& group = v.groups[g];
    group.first_visible[b] = kv::first_visible(group.view, num_computed);
    for (int i = 0; i < v.states_per_row; ++i)
      group.states[b * v.states_per_row + i] = kv::state_of(group.view, RowId(table_row), i);
  }
}

int32_t token_of(const PrepareParams& p, int row, int i, int32_t staged_token) {
  if (staged_token == kTokenFromRowState) return p.row_state[row].last_token;
  return staged_token == kTokenFromDraft ? p.drafts[row].tokens[i - 1] : staged_token;
}

// Derives one batch row and its tokens, staged from *staged_token on; returns the first token index after it.
int derive_row(const PrepareParams& p, const StagedSlot& slot, int b, int first_token, int* staged_token,
               StepError* error) {
  const StepView& v = p.view;
  const StagedRow& staged = slot.rows[b];
  const int tokens_left = v.padded_tokens - std::max(first_token, *staged_token);
  const int query_len = std::clamp(query_len_of(p, staged), 0, std::max(tokens_left, 0));
  const int row = *error == StepError::kSequenceGap ? kNullRow.value() : live_table_row(p, staged, query_len, error);
  const bool live = row != kNullRow.value();
  const RowState& state = p.row_state[row];
  writable(v.row_index)[b] = row;
  const int num_computed = live ? state.num_computed : 0;
  writable(v.seq_len)[b] = live ? num_computed + query_len : 0;
  p.sampling[b] = staged.sampling;
  p.sample_row[b] = live ? std::min(staged.sample, query_len) : 0;
  p.next_token[b] = staged.next_token;
  if (live) std::copy_n(slot.history + staged.history_start, staged.history_len, p.history.row(row));
  derive_groups(v, b, row, num_computed);
  for (int i = 0; i < query_len; ++i) {
    const int32_t token = token_of(p, row, i, slot.tokens[*staged_token + i]);
    const int position = live ? num_computed + i : 0;
    derive_token(p, first_token + i, b, row, position, live ? num_computed + query_len : 1, token);
    list_token(v, first_token + i, b, row, query_len, position, num_computed);
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
    for (int i = 0; i < slot.header->num_changes; ++i) apply_change(p, slot.changes[i]);
  }

  int t = 0, staged_token = 0, missing = 0;  // missing: drafts that there are not
  writable(v.query_start)[0] = 0;
  for (int g = 0; g < v.num_groups; ++g) *v.groups[g].attention.counts = {};
  for (int b = 0; b < v.padded_rows; ++b) {
    t = derive_row(p, slot, b, t, &staged_token, &error);
    writable(v.query_start)[b + 1] = t;
    missing += slot.rows[b].query_len - query_len_of(p, slot.rows[b]);
  }
  for (; t < v.padded_tokens; ++t) {
    derive_token(p, t, -1, kNullRow.value(), 0, 1, 0);
    list_token(v, t, 0, kNullRow.value(), 0, 0, 0);
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
