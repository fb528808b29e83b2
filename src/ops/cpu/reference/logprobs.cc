// Log probabilities of the logits rows that ask for some. In float64 over token ids in ascending order, compiled for
// the baseline, so that every instruction set gives the same bits.
#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/sample_finish.h"

namespace bz::ops::cpu::reference {
namespace {

constexpr LogprobResult kNothing{kTokenNone, 0.0f, 0, 0, {}, {}};

// Falling logits, ties by the lower id.
struct Order {
  const float* x;
  bool operator()(int32_t a, int32_t b) const { return x[a] != x[b] ? x[a] > x[b] : a < b; }
};

// The most likely ids, best first. Returns how many.
int32_t most_likely(const float* x, int32_t n, int32_t wanted, int32_t* ids) {
  const Order before{x};
  int32_t count = 0;
  for (int32_t i = 0; i < n && wanted > 0; ++i) {
    if (count == wanted && !before(i, ids[count - 1])) continue;
    int32_t at = count < wanted ? count++ : count - 1;
    for (; at > 0 && before(i, ids[at - 1]); --at) ids[at] = ids[at - 1];
    ids[at] = i;
  }
  return count;
}

LogprobResult logprobs_of(const float* x, int32_t n, int32_t token, int32_t num_top) {
  if (std::any_of(x, x + n, [](float v) { return std::isnan(v); })) return kNothing;
  const double max = *std::max_element(x, x + n);
  double sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  const double log_sum = max + std::log(sum);
  LogprobResult r = kNothing;
  r.token = token;
  r.logprob = static_cast<float>(x[token] - log_sum);
  const Order before{x};
  r.rank = 1;
  for (int32_t i = 0; i < n; ++i) r.rank += before(i, token) ? 1 : 0;
  r.num_top = most_likely(x, n, std::min(num_top, kMaxTopLogprobs), r.top_tokens);
  for (int32_t i = 0; i < r.num_top; ++i) r.top_logprobs[i] = static_cast<float>(x[r.top_tokens[i]] - log_sum);
  return r;
}

// The token that follows logits row l of batch row b: the step's next one, or what comes after the step.
int32_t token_after(const LogprobsParams& p, int64_t b, int32_t l) {
  if (l + 1 < p.view.logits_start[b + 1]) return p.view.token_ids[p.view.logits_token[l] + 1];
  return p.sample_row[b] != 0 ? p.results[ring_slot(p.step_count)][b * p.view.samples_per_row].token : p.next_token[b];
}

}  // namespace

void logprobs(const LogprobsParams& p, Worker& worker) {
  LogprobResult* results = p.logprob_results[ring_slot(p.step_count)];
  const StepView& v = p.view;
  worker.parallel_for(v.padded_logits, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto l = static_cast<int32_t>(i);
      results[l] = kNothing;
      if (l >= v.num_valid_logits->value()) continue;
      const int32_t b = v.token_row[v.logits_token[l]];
      const int32_t num_top = p.sampling[b].num_top_logprobs;
      const int32_t token = num_top >= 0 ? token_after(p, b, l) : kTokenNone;
      if (token >= 0) results[l] = logprobs_of(p.logits.row<float>(l), p.logits.cols, token, num_top);
    }
  });
}

}  // namespace bz::ops::cpu::reference
