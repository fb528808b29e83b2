// What a row samples from: logit_bias, min_tokens and penalties, over the token history. Plain f32 arithmetic, compiled
// for the baseline, so that every instruction set gives the same bits.
#include <algorithm>

#include "ops/cpu/kernels.h"
#include "ops/sample_finish.h"

namespace bz::ops::cpu::reference {
namespace {

// counts[id] = 2 * (times among the outputs) + (1 if in the prompt).
void count_tokens(const int32_t* history, int32_t num_tokens, int32_t prompt_len, int32_t vocab, int32_t* counts) {
  std::fill_n(counts, vocab, 0);
  for (int32_t p = 0; p < num_tokens; ++p) {
    int32_t& count = counts[history[p]];
    if (p < prompt_len) {
      count |= 1;
    } else {
      count += 2;
    }
  }
}

void bias_logits(const LogitAdjust& a, int32_t output_index, const LogitBias* biases, float* x) {
  biases += a.bias_start;
  if (output_index < a.min_tokens) {
    for (int32_t i = 0; i < a.num_masked; ++i) x[biases[i].token] = -__builtin_inff();
  }
  for (int32_t i = a.num_masked; i < a.num_masked + a.num_bias; ++i) x[biases[i].token] += biases[i].bias;
}

void penalize(const LogitAdjust& a, int32_t count, float* x) {
  *x = *x > 0.0f ? *x / a.repetition_penalty : *x * a.repetition_penalty;
  const int32_t outputs = count / 2;
  if (outputs == 0) return;
  *x -= a.frequency_penalty * static_cast<float>(outputs);
  *x -= a.presence_penalty;
}

void adjust_row(const AdjustLogitsParams& p, const LogitBias* biases, int64_t b, int32_t l) {
  const LogitAdjust& a = p.sampling[b].adjust;
  const int32_t vocab = p.logits.cols;
  float* x = p.adjusted.row<float>(b);
  std::copy_n(p.logits.row<float>(l), vocab, x);
  const int32_t num_tokens = p.view.positions[p.view.logits_token[l]] + 1;
  bias_logits(a, num_tokens - a.prompt_len, biases, x);
  if (a.repetition_penalty == 1.0f && a.frequency_penalty == 0.0f && a.presence_penalty == 0.0f) return;
  const int32_t* history = p.history.row(p.view.row_index[b]);
  int32_t* counts = p.counts + b * vocab;
  count_tokens(history, num_tokens, a.prompt_len, vocab, counts);
  for (int32_t i = 0; i < num_tokens; ++i) {  // each token once, at its first place
    int32_t& count = counts[history[i]];
    if (count == 0) continue;
    penalize(a, count, x + history[i]);
    count = 0;
  }
}

}  // namespace

void adjust_logits(const AdjustLogitsParams& p, Worker& worker) {
  const LogitBias* biases = p.ring[ring_slot(p.step_count)].biases;
  worker.parallel_for(p.view.padded_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (num_samples(p.view, p.sample_row, b) == 1) {
        adjust_row(p, biases, b, p.view.logits_start[b + 1] - 1);
      } else {
        std::fill_n(p.adjusted.row<float>(b), p.adjusted.cols, 0.0f);
      }
    }
  });
}

}  // namespace bz::ops::cpu::reference
