// Prompt lookup, a cta a row: every thread looks at some of the earlier places. The same answer as
// ops/cpu/reference/draft.cc.
#include "ops/cuda/checks.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/sample_finish.h"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = 256;

// How many tokens before tokens[a] and before tokens[b] agree, at most `most`.
__device__ int agreement(const int32_t* tokens, int a, int b, int most) {
  int n = 0;
  while (n < most && tokens[a - n - 1] == tokens[b - n - 1]) ++n;
  return n;
}

__global__ void __launch_bounds__(kThreads) draft_kernel(const __grid_constant__ DraftParams p) {
  __shared__ unsigned long long best;  // length of the match, then its place: the longest, of those the latest
  wait_for_previous();
  const int b = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x);
  if (num_samples(p.view, p.sample_row, b) == 0) return;
  const int row = p.view.row_index[b];
  const int len = min(p.row_state[row].num_computed + 1, p.history.stride);  // the last token among them
  const int32_t* tokens = p.history.row(row);
  if (tid == 0) best = 0;
  __syncthreads();
  unsigned long long mine = 0;
  for (int end = DraftParams::kMinNgram + tid; end < len; end += kThreads) {
    const int n = agreement(tokens, end, len, min(end, DraftParams::kMaxNgram));
    if (n >= DraftParams::kMinNgram) {
      mine = max(mine, static_cast<unsigned long long>(n) << 32 | static_cast<unsigned>(end));
    }
  }
  if (mine != 0) atomicMax(&best, mine);
  __syncthreads();
  if (tid >= p.max_tokens) return;
  const int place = best == 0 ? len : static_cast<int>(best & 0xffffffffu);
  RowDraft& draft = p.drafts[row];
  if (tid == 0) draft.count = min(p.max_tokens, len - place);
  if (place + tid < len) draft.tokens[tid] = tokens[place + tid];
}

}  // namespace

void draft(device::Stream& stream, const DraftParams& p) {
  check(p);
  launch(stream, "draft", draft_kernel,
         {.grid = static_cast<unsigned>(p.view.padded_rows), .cta = kThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
