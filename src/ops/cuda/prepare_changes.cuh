// How prepare brings the device's tables up to the staged changes, or empties them when the sequence has a gap.
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/prepare_lists.cuh"
#include "ops/prepare_rules.h"

namespace bz::ops::cuda {

inline constexpr int kChangeChunk = 256;

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
      if (tid == 0) require_row(p, chunk[i]);
      if (chunk[i].row.value() % kPrepareThreads == tid) apply_change(p, chunk[i]);
    }
  }
}

// PAD-10: at a gap nothing staged can be trusted: every row becomes empty.
__device__ inline void null_every_row(const PrepareParams& p) {
  for (int g = 0; g < p.view.num_groups; ++g) {
    for (int row = static_cast<int>(threadIdx.x); row < p.num_table_rows; row += kPrepareThreads) p.widths[g][row] = 0;
  }
}

}  // namespace bz::ops::cuda
