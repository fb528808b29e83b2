// Greedy sampling: a cluster of ctas a row, one pass over its logits.
#include <cooperative_groups.h>

#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_row.cuh"

namespace bz::ops::cuda {
namespace {

constexpr int kMaxCluster = 8;
constexpr int kFewRows = 16;  // more rows fill the GPU by themselves

__global__ void __launch_bounds__(kSampleThreads)
    sample_greedy_kernel(const __grid_constant__ SampleParams p, int cluster_size) {
  __shared__ LogitStats parts[kMaxCluster];  // in the first cta, one of each
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), rank = static_cast<int>(blockIdx.x);
  const bool wanted = row_samples(p.view, p.sample_row, row);
  LogitStats stats{-INFINITY, INT32_MAX, 0.0f, 0};
  if (wanted) stats = row_stats(p.logits_of(row), p.logits.cols, rank, cluster_size);
#if __CUDA_ARCH__ >= 900
  if (cluster_size > 1) {
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    if (threadIdx.x == 0) cluster.map_shared_rank(parts, 0)[rank] = stats;
    cluster.sync();
    if (rank != 0) return;
    stats = parts[0];
    for (int i = 1; i < cluster_size; ++i) stats = merge(stats, parts[i]);
  }
#endif
  if (threadIdx.x != 0) return;
  RowResult result{kTokenNone, 0.0f};
  if (wanted) result = stats.nan != 0 ? RowResult{kTokenNan, 0.0f} : RowResult{stats.arg, -logf(stats.sum)};
  finish_row(p, row, result);
}

}  // namespace

void sample_greedy(device::Stream& stream, const SampleParams& p) {
  check_greedy(p);
  const int cluster = p.view.padded_rows <= kFewRows ? kMaxCluster : 1;
  launch(stream, "sample_greedy", sample_greedy_kernel,
         {.grid = {static_cast<unsigned>(cluster), static_cast<unsigned>(p.view.padded_rows)},
          .cta = kSampleThreads,
          .cluster = cluster,
          .overlap = false},
         p, cluster);
}

}  // namespace bz::ops::cuda
