// Greedy sampling: one cta a row, one pass over its logits.
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_row.cuh"

namespace bz::ops::cuda {
namespace {

__global__ void __launch_bounds__(kSampleThreads) sample_greedy_kernel(const __grid_constant__ SampleParams p) {
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x);
  RowResult result{kTokenNone, 0.0f};
  if (samples_live(p.view, row) && p.sample_row[row] != 0) {
    const LogitStats s = row_stats(p.logits.row<float>(row), p.logits.cols);
    result = s.nan != 0 ? RowResult{kTokenNan, 0.0f} : RowResult{s.arg, -logf(s.sum)};
  }
  if (threadIdx.x == 0) finish_row(p, row, result);
}

}  // namespace

void sample_greedy(device::Stream& stream, const SampleParams& p) {
  check(p);
  launch(stream, "sample_greedy", sample_greedy_kernel,
         {.grid = static_cast<unsigned>(p.view.padded_rows), .cta = kSampleThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
