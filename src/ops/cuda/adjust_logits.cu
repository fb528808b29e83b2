// What a row samples from: logit_bias, min_tokens and penalties, over the token history. One cta a batch row. The same
// f32 arithmetic as ops/cpu/reference/adjust_logits.cc, rounded after each operation: the same bits.
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/sample_row.cuh"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = kSampleThreads;

// counts[id] = 2 * (times among the outputs) + (1 if in the prompt). Integers: no order of the additions matters.
__device__ void count_tokens(const int32_t* history, int num_tokens, int prompt_len, int vocab, int32_t* counts) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = tid; i < vocab; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = tid; i < num_tokens; i += kThreads) {
    if (i < prompt_len) {
      atomicOr(&counts[history[i]], 1);
    } else {
      atomicAdd(&counts[history[i]], 2);
    }
  }
  __syncthreads();
}

__device__ float penalize(const LogitAdjust& a, int32_t count, float x) {
  x = x > 0.0f ? __fdiv_rn(x, a.repetition_penalty) : __fmul_rn(x, a.repetition_penalty);
  const int32_t outputs = count / 2;
  if (outputs == 0) return x;
  x = __fsub_rn(x, __fmul_rn(a.frequency_penalty, static_cast<float>(outputs)));
  return __fsub_rn(x, a.presence_penalty);
}

__device__ void adjust_row(const AdjustLogitsParams& p, const LogitBias* biases, int b) {
  const LogitAdjust& a = p.sampling[b].adjust;
  const int tid = static_cast<int>(threadIdx.x), vocab = p.logits.cols;
  const int l = p.view.logits_start[b + 1] - 1;
  const float* logits = p.logits.row<float>(l);
  float* x = p.adjusted.row<float>(b);
  for (int i = tid; i < vocab; i += kThreads) x[i] = logits[i];
  __syncthreads();
  const int num_tokens = p.view.positions[p.view.logits_token[l]] + 1;
  biases += a.bias_start;
  if (num_tokens - a.prompt_len < a.min_tokens) {
    for (int i = tid; i < a.num_masked; i += kThreads) x[biases[i].token] = -INFINITY;
  }
  __syncthreads();
  // Each id once (Scheduler::check): no two threads write one logit.
  for (int i = a.num_masked + tid; i < a.num_masked + a.num_bias; i += kThreads) {
    x[biases[i].token] = __fadd_rn(x[biases[i].token], biases[i].bias);
  }
  if (a.repetition_penalty == 1.0f && a.frequency_penalty == 0.0f && a.presence_penalty == 0.0f) return;
  int32_t* counts = p.counts + static_cast<int64_t>(b) * vocab;
  count_tokens(p.history.row(p.view.row_index[b]), num_tokens, a.prompt_len, vocab, counts);
  for (int i = tid; i < vocab; i += kThreads) {
    if (counts[i] != 0) x[i] = penalize(a, counts[i], x[i]);
  }
}

__global__ void __launch_bounds__(kThreads) adjust_logits_kernel(const __grid_constant__ AdjustLogitsParams p) {
  wait_for_previous();
  const int b = static_cast<int>(blockIdx.x);
  if (num_samples(p.view, p.sample_row, b) == 1) {
    adjust_row(p, p.ring[(*p.step_count - 1) % PrepareParams::kRingSlots].biases, b);
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < p.adjusted.cols; i += kThreads) p.adjusted.row<float>(b)[i] = 0.0f;
}

}  // namespace

void adjust_logits(device::Stream& stream, const AdjustLogitsParams& p) {
  check(p);
  launch(stream, "adjust_logits", adjust_logits_kernel,
         {.grid = static_cast<unsigned>(p.view.padded_rows), .cta = kThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
