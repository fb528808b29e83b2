// Paged attention of single tokens, grouped-query: decode steps, rows with few tokens (attention.h), and without
// attention_prefill.cuh prompts too, token by token.
//
// A cluster of ctas shares one token, one KV head and up to Tile::kHeads of its query heads. The row's positions are
// dealt out to the cluster's warps in runs (attention_walk.cuh); a warp keeps a running softmax of the runs it saw, and
// all of them are merged at the end (attention_merge.cuh). What a warp does with its runs is the Tile's:
// attention_mma.cuh on the tensor cores, attention_scalar.cuh without.
//
// A row with seq_len 0 reads nothing and writes zeros here (PAD-5); a null block is skipped, never read (PAD-7).
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/attention_merge.cuh"
#include "ops/cuda/attention_walk.cuh"

namespace bz::ops::cuda {

// The token of cta z; -1: none.
__device__ inline int token_of(const StepView& view, const AttentionShare& share, int z) {
  if (share.by_row == 0) return z;
  const int row = z / share.max_queries, i = z % share.max_queries;
  const int first = view.query_start[row], end = view.query_start[row + 1];
  return first + i < end ? first + i : -1;
}

// Grid: (cluster, KV heads * chunks of Tile::kHeads query heads, tokens). Shared: kAttentionWarps *
// Tile::kWarpBytes, and with a cluster ClusterSlices.
template <class Tile>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_kernel(const __grid_constant__ AttentionParams p, const AttentionShare share) {
  constexpr int kHd = Tile::kHd, kHeads = Tile::kHeads;
  extern __shared__ __align__(256) std::byte warp_memory[];
  auto& slices = *reinterpret_cast<ClusterSlices<kHd, kHeads>*>(warp_memory + kAttentionWarps * Tile::kWarpBytes);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, rank = static_cast<int>(blockIdx.x);
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
  const int chunks = (heads_per_kv + kHeads - 1) / kHeads;
  const int kv_head = static_cast<int>(blockIdx.y) / chunks;
  const int first_in_kv = static_cast<int>(blockIdx.y) % chunks * kHeads;
  const int first_head = kv_head * heads_per_kv + first_in_kv;
  const int num_heads = min(kHeads, heads_per_kv - first_in_kv);
  const int cluster_size = share.cluster, token = token_of(p.view, share, static_cast<int>(blockIdx.z));
  float* out = p.out.row<float>(max(token, 0)) + first_head * kHd;
  const TokenView view(p.view, p.group, max(token, 0));
  if (token < 0 || !view.live || view.queries > share.max_queries) {
    wait_for_previous();
    let_next_start();
    if (share.max_queries != kAllQueries) return;  // attention_prefill.cuh's
    const Slice slice(num_heads * kHd, rank, cluster_size);
    for (int i = slice.begin + static_cast<int>(threadIdx.x); i < slice.end; i += kAttentionWarps * kWarp) out[i] = 0;
    return;
  }
  if (cluster_size > 1) expect_slices(slices, num_heads, cluster_size);
  std::byte* mine = warp_memory + warp * Tile::kWarpBytes;
  RunWalk<Tile::kRun> walk(p, view, kv_head * kHd * Tile::kElementBytes, rank * kAttentionWarps + warp,
                           cluster_size * kAttentionWarps);
  Tile tile;
  tile.attend(p, walk, p.q.row<float>(token) + first_head * kHd, num_heads, mine);
  __syncwarp();
  tile.store(*reinterpret_cast<AttentionPartial<kHd, kHeads>*>(mine), num_heads);
  merge_and_store(warp_memory, Tile::kWarpBytes, slices, out, num_heads, rank, cluster_size);
}

template <class Tile>
void launch_attention_tile(device::Stream& stream, const AttentionParams& p, const AttentionShare& share) {
  static_assert(Tile::kWarpBytes % 256 == 0 && Tile::kWarpBytes >= sizeof(AttentionPartial<Tile::kHd, Tile::kHeads>));
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
  const int chunks = (heads_per_kv + Tile::kHeads - 1) / Tile::kHeads;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(share.cluster), static_cast<unsigned>(p.layer.num_kv_heads * chunks),
                static_cast<unsigned>(share.num_tokens)};
  shape.cta = kAttentionWarps * kWarp;
  shape.shared_bytes = kAttentionWarps * Tile::kWarpBytes;
  if (share.cluster > 1) shape.shared_bytes += sizeof(ClusterSlices<Tile::kHd, Tile::kHeads>);
  shape.cluster = share.cluster;
  launch(stream, "attention", attention_kernel<Tile>, shape, p, share);
}

}  // namespace bz::ops::cuda
