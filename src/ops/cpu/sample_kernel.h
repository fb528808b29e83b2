// The fast samplers of one row. Greedy: two passes over the logits. Random: never sorts the vocabulary; top_k and top_p
// find their threshold by counting keys in buckets of 11 bits. Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after
// vec.h.
//
// Order of sums: weights exp(l - max) are added in runs of kRun ids, each by 16 partial sums over id % 16 and the tree
// of vec.h, the runs in float64 in ascending order. It depends on the row alone (PAD-9b).
#pragma once

namespace bz::ops::cpu {

inline constexpr int kRun = 1024;

struct RowMax {
  float max;
  int32_t id;  // the lowest id that has it
  bool has_nan;
};

template <class V>
RowMax row_max(const float* x, int32_t n) {
  auto max = V::set1(-__builtin_inff());
  uint32_t nan = 0;
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const auto v = V::load(x + i);
    nan |= V::mask_nan(v);
    max = V::max(max, v);
  }
  float m = V::max_lane(max);
  for (; i < n; ++i) {
    nan |= x[i] != x[i];
    m = x[i] > m ? x[i] : m;
  }
  int32_t id = 0;
  if (nan == 0) {
    const auto wanted = V::set1(m);
    while (id + 16 <= n && V::mask_equal(V::load(x + id), wanted) == 0) id += 16;
    while (id < n - 1 && x[id] != m) ++id;
  }
  return {m, id, nan != 0};
}

// Calls fn(begin, count, weights) for runs of weights exp((x - max) * factor / log2 e), kRun at a time.
template <class V, class Fn>
BZ_VEC void for_each_run(const float* x, int32_t n, float max, float factor, Fn&& fn) {
  alignas(64) float weight[kRun];
  for (int32_t r = 0; r < n; r += kRun) {
    const int32_t count = std::min(kRun, n - r);
    for (int32_t i = 0; i < count; i += 16) {
      const auto d = V::sub(V::load_n(x + r + i, std::min(16, count - i)), V::set1(max));
      V::store(weight + i, exp2_of<V>(V::mul(d, V::set1(factor))));
    }
    for (int32_t i = count; i % 16 != 0; ++i) weight[i] = 0.0f;
    fn(r, count, static_cast<const float*>(weight));
  }
}

template <class V>
float run_sum(const float* weight, int32_t count) {
  auto sum = V::zero();
  for (int32_t i = 0; i < count; i += 16) sum = V::add(sum, V::load(weight + i));
  return V::sum(sum);
}

template <class V>
double weight_sum(const float* x, int32_t n, float max, float factor) {
  double total = 0;
  for_each_run<V>(x, n, max, factor, [&](int32_t, int32_t count, const float* w) { total += run_sum<V>(w, count); });
  return total;
}

// The natural-log probability of a token under the unmodified logits.
template <class V>
float logprob_of(const float* x, int32_t n, const RowMax& m, int32_t token) {
  const double sum = weight_sum<V>(x, n, m.max, kLog2e);
  return static_cast<float>(static_cast<double>(x[token]) - m.max - __builtin_log(sum));
}

// ---- random ----

// Which tokens may be drawn: key above `key`, or equal to it and among the first `ties` ids that are.
struct Cut {
  uint32_t key = 0;
  int32_t ties = INT32_MAX;
};

// Larger float, larger key.
inline uint32_t order_key(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Finds the cut that keeps the largest keys until `enough(count, mass)` holds; of those below `upper` only.
// Three rounds of buckets: 11, 11 and 10 bits of the key, from the top.
template <class V>
class CutFinder {
 public:
  CutFinder(const float* x, int32_t n, float max, float factor) : x_(x), n_(n), max_(max), factor_(factor) {}

  template <class Enough>
  Cut find(const Cut& upper, Enough&& enough) {
    uint32_t prefix = 0, mask = 0;
    int32_t count = 0;
    double mass = 0;
    for (const int shift : {21, 10, 0}) {
      fill(upper, prefix, mask, shift);
      int b = kBuckets - 1;
      while (b > 0 && !enough(count + count_[b], mass + mass_[b])) {
        count += count_[b];
        mass += mass_[b];
        --b;
      }
      prefix |= static_cast<uint32_t>(b) << shift;
      mask |= static_cast<uint32_t>(shift == 21   ? kBuckets - 1
                                    : shift == 10 ? kBuckets - 1
                                                  : kBuckets / 2 - 1)
              << shift;
    }
    // All that is left has one key and so one weight: take as many as it needs.
    const int32_t equal = count_[prefix & (kBuckets / 2 - 1)];
    const double each = equal > 0 ? mass_[prefix & (kBuckets / 2 - 1)] / equal : 0;
    int32_t ties = 1;
    while (ties < equal && !enough(count + ties, mass + ties * each)) ++ties;
    return {prefix, ties};
  }

 private:
  static constexpr int kBuckets = 2048;

  void fill(const Cut& upper, uint32_t prefix, uint32_t mask, int shift) {
    __builtin_memset(count_, 0, sizeof(count_));
    __builtin_memset(mass_, 0, sizeof(mass_));
    int32_t ties = 0;
    const uint32_t low = shift == 0 ? kBuckets / 2 - 1 : kBuckets - 1;
    for_each_run<V>(x_, n_, max_, factor_, [&](int32_t r, int32_t count, const float* w) {
      for (int32_t i = 0; i < count; ++i) {
        const uint32_t key = order_key(x_[r + i]);
        if (key < upper.key || (key == upper.key && ++ties > upper.ties) || (key & mask) != prefix) continue;
        const uint32_t bucket = key >> shift & low;
        count_[bucket] += 1;
        mass_[bucket] += w[i];
      }
    });
  }

  const float* x_;
  const int32_t n_;
  const float max_;
  const float factor_;
  int32_t count_[kBuckets];
  double mass_[kBuckets];
};

// Calls fn(id, weight) for the tokens that the cut keeps, in ascending id.
template <class V, class Fn>
BZ_VEC void for_each_kept(const float* x, int32_t n, float max, float factor, const Cut& cut, Fn&& fn) {
  int32_t ties = 0;
  for_each_run<V>(x, n, max, factor, [&](int32_t r, int32_t count, const float* w) {
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t key = order_key(x[r + i]);
      if (key > cut.key || (key == cut.key && ++ties <= cut.ties)) fn(r + i, w[i]);
    }
  });
}

// Temperature, then top_k, then top_p over what is left, then min_p relative to the most likely token (whose weight is
// 1 and which always stays): the order of Hugging Face's warpers. `u` is uniform in [0, 1).
template <class V>
int32_t draw(const float* x, int32_t n, const RowMax& m, const RowSampling& s, double u) {
  const float factor = kLog2e / s.temperature;
  CutFinder<V> finder(x, n, m.max, factor);
  Cut cut;
  if (s.top_k > 0 && s.top_k < n) {
    cut = finder.find(cut, [&](int32_t count, double) { return count >= s.top_k; });
  }
  if (s.top_p < 1.0f) {
    double total = 0;
    for_each_kept<V>(x, n, m.max, factor, cut, [&](int32_t, float w) { total += w; });
    cut = finder.find(cut, [&](int32_t, double mass) { return mass >= s.top_p * total; });
  }
  const auto candidate = [&](int32_t id, float w) { return w >= s.min_p || id == m.id; };
  double total = 0, sum = 0;
  for_each_kept<V>(x, n, m.max, factor, cut, [&](int32_t id, float w) {
    if (candidate(id, w)) total += w;
  });
  int32_t token = m.id;
  bool found = false;
  for_each_kept<V>(x, n, m.max, factor, cut, [&](int32_t id, float w) {
    if (found || w == 0.0f || !candidate(id, w)) return;
    sum += w;
    token = id;
    found = u * total < sum;
  });
  return token;
}

// ---- both, over the rows of a step ----

// Sample i of n of batch row b.
template <class V>
RowResult sample_one(const SampleParams& p, int64_t b, int32_t i, int32_t n_samples, bool greedy) {
  const float* x = p.logits_of(b, i, n_samples);
  const float* choices = p.choices_of(b, i, n_samples);
  const int32_t n = p.logits.cols;
  const RowMax m = row_max<V>(x, n);
  if (m.has_nan) return {kTokenNan, 0.0f};
  const RowMax best = choices == x ? m : row_max<V>(choices, n);
  int32_t token = best.id;
  if (!greedy && p.sampling[b].temperature > 0.0f) {
    const RowSampling& s = p.sampling[b];
    token = draw<V>(choices, n, best, s, uniform(s.seed, output_index(p, b, i)));
  }
  return {token, logprob_of<V>(x, n, m, token)};
}

template <class V>
void sample_rows(const SampleParams& p, Worker& worker, bool greedy) {
  sample_each_row(p, worker, [&](int64_t b, int32_t i, int32_t n) { return sample_one<V>(p, b, i, n, greedy); });
}

}  // namespace bz::ops::cpu
