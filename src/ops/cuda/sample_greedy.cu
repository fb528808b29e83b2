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

// In the first cta of a cluster: of each sample, the statistics of one part of the vocabulary a cta.
using Parts = LogitStats[1 + kMaxDraftTokens][kMaxCluster];

__device__ void sync_cluster([[maybe_unused]] int cluster_size) {
#if __CUDA_ARCH__ >= 900
  if (cluster_size > 1) return cooperative_groups::this_cluster().sync();
#endif
  __syncthreads();
}

__device__ LogitStats& part_of(Parts& parts, int sample, int rank, [[maybe_unused]] int cluster_size) {
#if __CUDA_ARCH__ >= 900
  if (cluster_size > 1) return cooperative_groups::this_cluster().map_shared_rank(&parts[sample][rank], 0)[0];
#endif
  return parts[sample][rank];
}

__global__ void __launch_bounds__(kSampleThreads)
    sample_greedy_kernel(const __grid_constant__ SampleParams p, int cluster_size) {
  __shared__ Parts parts;
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), rank = static_cast<int>(blockIdx.x);
  const int n = num_samples(p.view, p.sample_row, row);
  if (n > 0) sync_cluster(cluster_size);  // every cta has started
  for (int i = 0; i < n; ++i) {
    const LogitStats stats = row_stats(p.logits_of(row, i, n), p.logits.cols, rank, cluster_size);
    if (threadIdx.x == 0) part_of(parts, i, rank, cluster_size) = stats;
  }
  if (n > 0) sync_cluster(cluster_size);
  if (rank != 0 || threadIdx.x != 0) return;
  RowResult samples[1 + kMaxDraftTokens];
  for (int i = 0; i < n; ++i) {
    LogitStats stats = parts[i][0];
    for (int c = 1; c < cluster_size; ++c) stats = merge(stats, parts[i][c]);
    samples[i] = stats.nan != 0 ? RowResult{kTokenNan, 0.0f} : RowResult{stats.arg, -logf(stats.sum)};
  }
  end_row(p, row, samples, n);
}

}  // namespace

void sample_greedy(device::Stream& stream, const SampleParams& p) {
  check_greedy(p);
  const int cluster = p.view.padded_rows <= kFewRows ? cluster_or_one(stream, kMaxCluster) : 1;
  launch(stream, "sample_greedy", sample_greedy_kernel,
         {.grid = {static_cast<unsigned>(cluster), static_cast<unsigned>(p.view.padded_rows)},
          .cta = kSampleThreads,
          .cluster = cluster,
          .overlap = false},
         p, cluster);
}

}  // namespace bz::ops::cuda
