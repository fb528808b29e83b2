// Paged attention of single tokens, grouped-query, where tokens are few or sums must not depend on how many there are
// (PAD-9b): each token's unit of heads has a cluster of
// ctas. All warps of the cluster share the row's positions and merge what they saw (attention_merge.cuh).
//
// A row with seq_len 0 reads nothing and writes zeros here (PAD-5).
#pragma once

#include "ops/cuda/attention_unit.cuh"

namespace bz::ops::cuda {

// Grid: (cluster, units, tokens). Shared: kAttentionWarps * Tile::kWarpBytes, and with a cluster ClusterSlices.
template <class Tile>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_few_kernel(const __grid_constant__ AttentionParams p, const int cluster_size) {
  using Unit = AttentionUnit<Tile>;
  extern __shared__ __align__(256) std::byte memory[];
  auto& slices =
      *reinterpret_cast<ClusterSlices<Unit::kHd, Unit::kHeads>*>(memory + kAttentionWarps * Tile::kWarpBytes);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, rank = static_cast<int>(blockIdx.x);
  const int token = static_cast<int>(blockIdx.z);
  const TokenView view(p.view, p.group, token);
  const Unit unit(p, token, static_cast<int>(blockIdx.y));
  if (!view.live) {
    wait_for_previous();
    let_next_start();
    const Slice slice(unit.num_heads * Unit::kHd, rank, cluster_size);
    for (int i = slice.begin + static_cast<int>(threadIdx.x); i < slice.end; i += kAttentionWarps * kWarp)
      unit.out[i] = 0;
    return;
  }
  if (cluster_size > 1) expect_slices(slices, unit.num_heads, cluster_size);
  unit.attend(view.sees, memory, rank * kAttentionWarps + warp, cluster_size * kAttentionWarps, [] {});
  __syncthreads();
  if (cluster_size == 1)
    return merge_in_cta<typename Unit::Partial>(memory, Tile::kWarpBytes, unit.out, unit.num_heads);
  merge_in_cluster(memory, Tile::kWarpBytes, slices, unit.out, unit.num_heads, rank, cluster_size);
}

}  // namespace bz::ops::cuda
