// How prepare brings the device's tables up to the staged changes, or empties them when the sequence has a gap.
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/prepare_lists.cuh"

namespace bz::ops::cuda {

using kv::ChangeKind;
using kv::kNullRow;

inline constexpr int kChangeChunk = 256;

// A change that names what does not exist is a fault of ours: it must not become a stray write.
__device__ inline void require(bool ok) {
  if (!ok) __trap();
}

__device__ inline void apply_change(const PrepareParams& p, const kv::TableChange& c) {
  const int row = c.row.value();
  if (c.kind == ChangeKind::kRowStart) {
    p.row_state[row] = {static_cast<int32_t>(c.value), 0, 1, 0};
    p.drafts[row].count = 0;
    return;
  }
  const int g = c.group.value();
  require(g >= 0 && g < p.view.num_groups);
  const int32_t columns = p.view.groups[g].view.max_blocks_per_row;
  switch (c.kind) {
    case ChangeKind::kBlock:
      require(c.column >= 0 && c.column < columns);
      p.tables[g][static_cast<int64_t>(row) * columns + c.column] = kv::BlockId(c.value);
      break;
    case ChangeKind::kWidth: p.widths[g][row] = static_cast<int32_t>(c.value); break;
    case ChangeKind::kFirst: p.firsts[g][row] = static_cast<int32_t>(c.value); break;
    case ChangeKind::kRowStart: break;
  }
}

// In the order staged: thread r applies every change of table rows r, r + kPrepareThreads, ... and no other thread
// does.
__device__ inline void apply_changes(const PrepareParams& p, const StagedSlot& slot, int num_changes) {
  __shared__ kv::TableChange chunk[kChangeChunk];
  const int tid = static_cast<int>(threadIdx.x);
  for (int first = 0; first < num_changes; first += kChangeChunk) {
    const int n = min(kChangeChunk, num_changes - first);
    __syncthreads();
    if (tid < n) chunk[tid] = slot.changes[first + tid];
    __syncthreads();
    for (int i = 0; i < n; ++i) {
      const int row = chunk[i].row.value();
      if (tid == 0) require(row > kNullRow.value() && row < p.num_table_rows);  // the null row is immutable
      if (row % kPrepareThreads == tid) apply_change(p, chunk[i]);
    }
  }
}

// PAD-10: at a gap nothing staged can be trusted: every row becomes empty.
__device__ inline void null_every_row(const PrepareParams& p) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    for (int row = static_cast<int>(threadIdx.x); row < p.num_table_rows; row += kPrepareThreads) p.widths[g][row] = 0;
  }
}

__device__ inline bool is_empty(const PrepareParams& p, int row) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    if (p.view.groups[g].view.width[row] != 0) return false;
  }
  return true;
}

}  // namespace bz::ops::cuda
