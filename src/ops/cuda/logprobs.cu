// Log probabilities of the logits rows that ask for some: one cta a logits row, a pass over the row for each of the
// most likely tokens. As ops/cpu/reference/logprobs.cc says them, in f32.
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_row.cuh"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = kSampleThreads;

// Falling logits, ties by the lower id.
struct Candidate {
  float logit;
  int32_t id;
};
__device__ bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The best candidate behind `last`; the same in every thread. id INT32_MAX: there is none.
__device__ Candidate next_best(const float* logits, int n, const Candidate& last) {
  __shared__ Candidate shared[32];
  const int tid = static_cast<int>(threadIdx.x);
  Candidate best{-INFINITY, INT32_MAX};
  for (int i = tid; i < n; i += kThreads) {
    const Candidate c{logits[i], i};
    if (before(last, c) && before(c, best)) best = c;
  }
  const auto reduce = [&best] {
    for (int offset = 16; offset > 0; offset /= 2) {
      const Candidate c{__shfl_xor_sync(0xffffffffu, best.logit, offset),
                        __shfl_xor_sync(0xffffffffu, best.id, offset)};
      if (before(c, best)) best = c;
    }
  };
  reduce();
  __syncthreads();
  if (tid % 32 == 0) shared[tid / 32] = best;
  __syncthreads();
  best = shared[tid % 32];
  reduce();
  return best;
}

// 1 + how many ids are before `token`.
__device__ int32_t rank_of(const float* logits, int n, int32_t token) {
  __shared__ int32_t shared[32];
  const Candidate wanted{logits[token], token};
  int32_t count = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) count += before({logits[i], i}, wanted) ? 1 : 0;
  for (int offset = 16; offset > 0; offset /= 2) count += __shfl_xor_sync(0xffffffffu, count, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = count;
  __syncthreads();
  count = shared[threadIdx.x % 32];
  for (int offset = 16; offset > 0; offset /= 2) count += __shfl_xor_sync(0xffffffffu, count, offset);
  return 1 + count;
}

// The token that follows logits row l of batch row b: the step's next one, or what comes after the step.
__device__ int32_t token_after(const LogprobsParams& p, const RowResult* sampled, int b, int l) {
  if (l + 1 < p.view.logits_start[b + 1]) return p.view.token_ids[p.view.logits_token[l] + 1];
  return p.sample_row[b] != 0 ? sampled[b * p.view.samples_per_row].token : p.next_token[b];
}

__global__ void __launch_bounds__(kThreads) logprobs_kernel(const __grid_constant__ LogprobsParams p) {
  wait_for_previous();
  const int l = static_cast<int>(blockIdx.x);
  const auto slot = (*p.step_count - 1) % SampleParams::kRingSlots;
  LogprobResult& out = p.logprob_results[slot][l];
  const bool first = threadIdx.x == 0;
  int32_t token = kTokenNone, num_top = -1;
  if (l < p.view.num_valid_logits->value()) {
    const int b = p.view.token_row[p.view.logits_token[l]];
    num_top = min(p.sampling[b].num_top_logprobs, kMaxTopLogprobs);
    if (num_top >= 0) token = token_after(p, p.results[slot], b, l);
  }
  const int n = p.logits.cols;
  const float* logits = p.logits.row<float>(l);
  LogitStats stats{};
  if (token >= 0) stats = row_stats(logits, n);
  if (token < 0 || stats.nan != 0) {
    if (first) out = {kTokenNone, 0.0f, 0, 0, {}, {}};
    return;
  }
  const float log_sum = stats.max + logf(stats.sum);
  const int32_t rank = rank_of(logits, n, token);
  if (first) {
    out.token = token;
    out.logprob = logits[token] - log_sum;
    out.rank = rank;
    out.num_top = min(num_top, n);
  }
  Candidate last{INFINITY, -1};
  for (int i = 0; i < kMaxTopLogprobs; ++i) {
    if (i < min(num_top, n)) last = next_best(logits, n, last);
    if (first) {
      out.top_tokens[i] = i < min(num_top, n) ? last.id : 0;
      out.top_logprobs[i] = i < min(num_top, n) ? last.logit - log_sum : 0.0f;
    }
  }
}

}  // namespace

void logprobs(device::Stream& stream, const LogprobsParams& p) {
  check(p);
  launch(stream, "logprobs", logprobs_kernel,
         {.grid = static_cast<unsigned>(p.view.padded_logits), .cta = kThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
