// Reference samplers: plain sums in float64 over token ids in ascending order, a full sort for top_k and top_p.
#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/philox.h"
#include "ops/cpu/sample_rows.h"

namespace bz::ops::cpu::reference {
namespace {

bool has_nan(const float* logits, int32_t n) {
  return std::any_of(logits, logits + n, [](float x) { return std::isnan(x); });
}

// Ties go to the lowest id.
int32_t argmax(const float* logits, int32_t n) {
  return static_cast<int32_t>(std::max_element(logits, logits + n) - logits);
}

double log_sum_exp(const float* logits, int32_t n, double max) {
  double sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += std::exp(logits[i] - max);
  return max + std::log(sum);
}

RowResult result_of(const float* logits, int32_t n, int32_t token) {
  const double max = logits[argmax(logits, n)];
  return {token, static_cast<float>(logits[token] - log_sum_exp(logits, n, max))};
}

// Temperature, then top_k, then top_p over what is left, then min_p relative to the most likely token: the order of
// Hugging Face's warpers. `order` and `weight` are scratch of n entries.
int32_t draw(const float* logits, int32_t n, const RowSampling& s, double u, int32_t* order, double* weight) {
  const double max = logits[argmax(logits, n)];
  double total = 0;
  for (int32_t i = 0; i < n; ++i) {
    order[i] = i;
    weight[i] = std::exp((logits[i] - max) / s.temperature);
  }
  std::sort(order, order + n,
            [&](int32_t a, int32_t b) { return weight[a] != weight[b] ? weight[a] > weight[b] : a < b; });
  int32_t keep = s.top_k > 0 ? std::min(s.top_k, n) : n;
  for (int32_t i = 0; i < keep; ++i) total += weight[order[i]];
  if (s.top_p < 1.0f) {
    double mass = 0;
    int32_t i = 0;
    while (i < keep && (i == 0 || mass < s.top_p * total)) mass += weight[order[i++]];
    keep = i;
  }
  while (keep > 1 && weight[order[keep - 1]] < s.min_p) --keep;  // the most likely token has weight 1
  std::sort(order, order + keep);
  total = 0;
  for (int32_t i = 0; i < keep; ++i) total += weight[order[i]];
  double sum = 0;
  for (int32_t i = 0; i < keep; ++i) {
    sum += weight[order[i]];
    if (u * total < sum) return order[i];
  }
  return order[keep - 1];
}

// choose(b, i, logits): the token of sample i of batch row b.
template <class Choose>
void sample(const SampleParams& p, Worker& worker, Choose&& choose) {
  sample_each_row(p, worker, [&](int64_t b, int32_t i, int32_t n) {
    const float* logits = p.logits_of(b, i, n);
    const int32_t vocab = p.logits.cols;
    if (has_nan(logits, vocab)) return RowResult{kTokenNan, 0.0f};
    return result_of(logits, vocab, choose(b, i, p.choices_of(b, i, n)));
  });
}

// Scratch of one row of kRandom: order and weight.
constexpr size_t kBytesPerEntry = sizeof(double) + sizeof(int32_t);

}  // namespace

void sample_greedy(const SampleParams& p, Worker& worker) {
  sample(p, worker, [&](int64_t, int32_t, const float* logits) { return argmax(logits, p.logits.cols); });
}

void sample_random(const SampleParams& p, Worker& worker) {
  sample(p, worker, [&](int64_t b, int32_t i, const float* logits) {
    const int32_t n = p.logits.cols;
    const RowSampling& s = p.sampling[b];
    if (s.temperature <= 0.0f) return argmax(logits, n);
    auto* weight = static_cast<double*>(p.scratch) + b * (n + (n + 1) / 2);
    auto* order = reinterpret_cast<int32_t*>(weight + n);
    const double u = uniform(s.seed, output_index(p, b, i));
    return draw(logits, n, s, u, order, weight);
  });
}

size_t sample_scratch_bytes(int32_t rows, int32_t vocab) {
  return static_cast<size_t>(rows) * (static_cast<size_t>(vocab) + 1) * kBytesPerEntry;
}

}  // namespace bz::ops::cpu::reference
