// The launch of a decode kernel for a Tile.
#pragma once

#include <algorithm>

#include "ops/cuda/attention_few.cuh"
#include "ops/cuda/attention_many.cuh"

namespace bz::ops::cuda {

template <class Tile>
void launch_attention_tile(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan) {
  const int units = attention_units<Tile>(p);
  LaunchShape shape;
  shape.cta = kAttentionWarps * kWarp;
  shape.shared_bytes = kAttentionWarps * Tile::kWarpBytes;
  if (plan.many_ctas > 0) {
    shape.grid = static_cast<uint32_t>(std::min<int64_t>(plan.many_ctas, int64_t{p.q.rows} * units));
    return launch(stream, "attention", attention_many_kernel<Tile>, shape, p, ManyShare{!plan.prefill, units});
  }
  shape.grid = {static_cast<unsigned>(plan.cluster), static_cast<unsigned>(units), static_cast<unsigned>(p.q.rows)};
  shape.cluster = plan.cluster;
  if (plan.cluster > 1) shape.shared_bytes += sizeof(ClusterSlices<Tile::kHd, Tile::kHeads>);
  launch(stream, "attention", attention_few_kernel<Tile>, shape, p, FewShare{plan.cluster, plan.positions_log2});
}

}  // namespace bz::ops::cuda
