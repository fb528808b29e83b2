// What prepare makes of one staged change, row or token: the same code on every device (PAD-4). How changes, rows and
// tokens are shared out among threads is each backend's own.
//
// A padded token is (null row, position 0): kv/slot.h answers kPadSlot for it (PAD-2, PAD-3).
#pragma once

#include <algorithm>

#include "base/mutation.h"
#include "ops/params.h"
#if !defined(__CUDACC__)
#include "base/check.h"  // nvcc cannot compile fmt
#endif

namespace bz::ops {

// Writes through the const pointers that everyone else reads.
template <class T>
BZ_HD T* writable(const T* p) {
  return const_cast<T*>(p);
}

// A change that names what does not exist is a fault of ours: it must not become a stray write.
BZ_HD inline void require([[maybe_unused]] bool ok, [[maybe_unused]] const char* what) {
#if defined(__CUDA_ARCH__)
  if (!ok) __trap();
#elif !defined(__CUDACC__)
  BZ_CHECK_MSG(ok, "a staged change names no {}", what);
#endif
}
BZ_HD inline void require_row(const PrepareParams& p, const kv::TableChange& c) {
  require(c.row > kv::kNullRow && c.row.value() < p.num_table_rows, "table row");  // the null row is immutable
}

BZ_HD inline void apply_change(const PrepareParams& p, const kv::TableChange& c) {
  const int row = c.row.value();
  if (c.kind == kv::ChangeKind::kRowStart) {
    p.row_state[row] = {static_cast<int32_t>(c.value), 0, 1, 0};
    p.drafts[row].count = 0;
    return;
  }
  const int g = c.group.value();
  require(g >= 0 && g < p.view.num_groups, "group");
  const int32_t columns = p.view.groups[g].view.max_blocks_per_row;
  switch (c.kind) {
    case kv::ChangeKind::kBlock:
      require(c.column >= 0 && c.column < columns, "column");
      p.tables[g][static_cast<int64_t>(row) * columns + c.column] = kv::BlockId(c.value);
      break;
    case kv::ChangeKind::kWidth: p.widths[g][row] = static_cast<int32_t>(c.value); break;
    case kv::ChangeKind::kFirst: p.firsts[g][row] = static_cast<int32_t>(c.value); break;
    case kv::ChangeKind::kRowStart: break;
  }
}

BZ_HD inline bool is_empty(const PrepareParams& p, int row) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    if (p.view.groups[g].view.width[row] != 0) return false;
  }
  return true;
}

// How many tokens the row computes: it ends where its drafts do.
BZ_HD inline int query_len_of(const PrepareParams& p, const StagedRow& staged) {
  if (staged.sample <= 1 || staged.row_index >= p.num_table_rows) return std::max(staged.query_len, 0);
  return std::min(staged.query_len, 1 + p.drafts[staged.row_index].count);
}

// The table row a batch row may use: the null row unless its staged row is live and within what the plan reserved. At a
// gap every row is empty by now (PAD-10).
BZ_HD inline int live_table_row(const PrepareParams& p, const StagedRow& staged, int query_len, StepError* error) {
  const int row = staged.row_index;
  if (row <= kv::kNullRow.value() || row >= p.num_table_rows || staged.query_len <= 0 || is_empty(p, row)) {
    return kv::kNullRow.value();
  }
  if (p.row_state[row].num_computed + query_len > staged.max_seq_len && !mutated(Mutation::kNoReserveCheck)) {
    *error = StepError::kPastReserved;
    return kv::kNullRow.value();
  }
  return row;
}

// Batch row b of the step view, with what it sees and owns in every group: where its queries begin to look, and its
// states (STATE-1). row: its table row, or the null row.
BZ_HD inline void derive_row(const PrepareParams& p, const StagedRow& staged, int b, int row, int query_len) {
  const StepView& v = p.view;
  const bool live = row != kv::kNullRow.value();
  const int num_computed = live ? p.row_state[row].num_computed : 0;
  writable(v.row_index)[b] = row;
  writable(v.seq_len)[b] = live ? num_computed + query_len : 0;
  p.sampling[b] = staged.sampling;
  p.sample_row[b] = live ? std::min(staged.sample, query_len) : 0;
  p.next_token[b] = staged.next_token;
  for (int g = 0; g < v.num_groups; ++g) {
    const GroupStep& group = v.groups[g];
    group.first_visible[b] = kv::first_visible(group.view, num_computed);
    for (int i = 0; i < v.states_per_row; ++i)
      group.states[b * v.states_per_row + i] = kv::state_of(group.view, kv::RowId(row), i);
  }
}

// A row's token i, staged as an id or as where to find it.
BZ_HD inline int32_t token_id(const PrepareParams& p, int row, int i, int32_t staged) {
  if (staged == kTokenFromRowState) return p.row_state[row].last_token;
  return staged == kTokenFromDraft ? p.drafts[row].tokens[i - 1] : staged;
}

// A token of the step view. table_row: the null row for padding and nulled rows, whose other members are zeros but
// query_len.
struct TokenPlace {
  int batch_row, table_row, query_len, position, num_computed;
};
BZ_HD inline void derive_token(const PrepareParams& p, int t, int32_t id, const TokenPlace& place) {
  const StepView& v = p.view;
  const bool live = place.table_row != kv::kNullRow.value();
  writable(v.token_ids)[t] = live ? id : 0;
  writable(v.positions)[t] = place.position;
  writable(v.token_row)[t] = live ? place.batch_row : -1;
  if (live) p.history.set(place.table_row, place.position, id);
  if (!live && mutated(Mutation::kZeroFilledSlots)) return;
  const int seq_end = live ? place.num_computed + place.query_len : 1;
  for (int g = 0; g < v.num_groups; ++g)
    v.groups[g].slots[t] = kv::write_slot(v.groups[g].view, kv::RowId(place.table_row), place.position, seq_end);
}

}  // namespace bz::ops
