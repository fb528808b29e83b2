// Paged attention of single tokens, grouped-query, where tokens are few or sums must not depend on how many there are
// (PAD-9b): each token's unit of heads has a cluster of ctas, as many of which as its positions are worth share them
// and merge what they saw (attention_merge.cuh); the others return at once.
//
// A row with seq_len 0 reads nothing and writes zeros here (PAD-5).
#pragma once

#include "ops/cuda/attention_unit.cuh"
#include "ops/cuda/token_view.cuh"

namespace bz::ops::cuda {

// What sizes alone decide.
struct FewShare {
  int cluster, positions_log2;
  // Ctas of a cluster that share n positions. To merge a second one's costs more than what it saves a short row.
  __device__ int of(int n) const {
    constexpr int kAlone = 128;
    return n <= kAlone ? 1 : min(cluster, ((n - 1) >> positions_log2) + 1);
  }
};

// Grid: (cluster, units, tokens). Shared: kAttentionWarps * Tile::kWarpBytes, and with a cluster ClusterSlices.
template <class Tile>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_few_kernel(const __grid_constant__ AttentionParams p, const FewShare share) {
  using Unit = AttentionUnit<Tile>;
  auto* memory = dynamic_shared<std::byte>();
  auto& slices =
      *reinterpret_cast<ClusterSlices<Unit::kHd, Unit::kHeads>*>(memory + kAttentionWarps * Tile::kWarpBytes);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, rank = static_cast<int>(blockIdx.x);
  const int token = static_cast<int>(blockIdx.z);
  const TokenView view(p.view, p.group, token);
  const Unit unit(p, token, static_cast<int>(blockIdx.y));
  if (!view.live) {
    wait_for_previous();
    let_next_start();
    const Slice slice(unit.num_heads * Unit::kHd, rank, share.cluster);
    const uint64_t policy = unit.policy();
    for (int i = slice.begin + static_cast<int>(threadIdx.x); i < slice.end; i += kAttentionWarps * kWarp)
      store(unit.out + i, 0, policy);
    return;
  }
  const int sharing = share.of(view.sees.end - view.sees.begin);
  if (rank >= sharing) return;
  if (sharing > 1) expect_slices(slices, unit.num_heads, sharing);
  unit.attend(view.sees, memory, rank * kAttentionWarps + warp, sharing * kAttentionWarps, [] {});
  __syncthreads();
  if (sharing == 1) {
    merge_in_cta<typename Unit::Partial>(memory, Tile::kWarpBytes, unit.out, unit.policy(), unit.num_heads);
  } else {
    merge_in_cluster(memory, Tile::kWarpBytes, slices, unit.out, unit.policy(), unit.num_heads, rank, sharing);
  }
}

}  // namespace bz::ops::cuda
