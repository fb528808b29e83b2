// Random sampling: temperature, then top_k, then top_p over what is left, then min_p relative to the most likely token
// (the order of Hugging Face's warpers); one cta a row, in float64.
//
// Nothing is sorted. "The k most likely" and "the most likely whose mass reaches top_p" are prefixes of one order
// (weight falling, ties by rising id); each is found as a threshold on the logit, by bisection over the order of float
// bits, and a number of ties to keep.
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/philox.cuh"
#include "ops/cuda/sample_row.cuh"

namespace bz::ops::cuda {
namespace {

// Larger float, larger key. No NaN.
__device__ uint32_t key_of(float f) {
  const uint32_t bits = __float_as_uint(f + 0.0f);  // -0 counts as 0
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// Which tokens are kept: all with a key above `key`, and of those equal to it the first `ties` by id.
struct Kept {
  uint32_t key = 0;
  int32_t ties = INT32_MAX;
};

struct Row {
  const float* logits;
  int32_t n;
  const double* weight;  // exp((logit - max) / temperature)
  double* sums;          // shared [32]
};

// Thread t owns ids [begin, end): consecutive, so that sums by thread follow the ids.
__device__ int2 my_ids(int32_t n) {
  const int per = (n + kSampleThreads - 1) / kSampleThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * per, n);
  return {begin, min(begin + per, n)};
}

// Sum over the cta of fn(id).
template <class Fn>
__device__ double sum_over(const Row& r, Fn&& fn) {
  const int2 ids = my_ids(r.n);
  double sum = 0;
  for (int i = ids.x; i < ids.y; ++i) sum += fn(i);
  return cta_sum(sum, r.sums);
}

// Sum of the threads below this one.
__device__ double sum_below(const Row& r, double mine) {
  __shared__ double all[kSampleThreads];
  __shared__ double warp_total[32];
  const int tid = static_cast<int>(threadIdx.x);
  __syncthreads();
  all[tid] = mine;
  __syncthreads();
  if (tid % 32 == 0) {
    double sum = 0;
    for (int i = 0; i < 32; ++i) sum += all[tid + i];
    warp_total[tid / 32] = sum;
  }
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < tid / 32; ++w) sum += warp_total[w];
  for (int i = tid / 32 * 32; i < tid; ++i) sum += all[i];
  return sum;
}

__device__ bool keeps(const Row& r, const Kept& k, int i, int ties_below) {
  const uint32_t key = key_of(r.logits[i]);
  return key > k.key || (key == k.key && ties_below < k.ties);
}

// The shortest prefix of the order, within `outer`, whose measure reaches `wanted`; measure(i) is 1 or a weight. At
// least one token.
template <class Measure>
__device__ Kept cut(const Row& r, const Kept& outer, double wanted, Measure&& measure) {
  // Smallest measure above a key is falling in the key: find the lowest key whose strictly-above mass is < wanted.
  uint32_t low = outer.key, high = 0xffffffffu;
  while (low < high) {
    const uint32_t mid = low + (high - low) / 2;
    const double above = sum_over(r, [&](int i) { return key_of(r.logits[i]) > mid ? measure(i) : 0.0; });
    if (above < wanted) {
      high = mid;
    } else {
      low = mid + 1;
    }
  }
  Kept k;
  k.key = low;
  const double above = sum_over(r, [&](int i) { return key_of(r.logits[i]) > low ? measure(i) : 0.0; });
  // Ties have one weight: as many as are missing.
  const double one = sum_over(r, [&](int i) { return key_of(r.logits[i]) == low ? measure(i) : 0.0; });
  const double count = sum_over(r, [&](int i) { return key_of(r.logits[i]) == low ? 1.0 : 0.0; });
  const double each = count > 0 ? one / count : 1.0;
  const double missing = each > 0 ? ceil((wanted - above) / each) : 1.0;
  k.ties = static_cast<int32_t>(fmin(fmax(missing, above > 0 ? 0.0 : 1.0), 2147483647.0));
  if (k.key == outer.key) k.ties = min(k.ties, outer.ties);
  return k;
}

__device__ int32_t draw(const Row& r, const RowSampling& s, double u) {
  Kept kept;
  if (s.top_k > 0 && s.top_k < r.n) kept = cut(r, kept, s.top_k, [](int) { return 1.0; });
  const int2 ids = my_ids(r.n);
  // Ties below my first id, once the threshold is known.
  const auto my_ties_below = [&] {
    double mine = 0;
    for (int i = ids.x; i < ids.y; ++i) mine += key_of(r.logits[i]) == kept.key ? 1.0 : 0.0;
    return static_cast<int32_t>(sum_below(r, mine));
  };
  // Sum of the weights kept among my ids, after the cuts so far.
  const auto my_mass = [&](double min_weight) {
    int32_t ties = my_ties_below();
    double mine = 0;
    for (int i = ids.x; i < ids.y; ++i) {
      if (keeps(r, kept, i, ties) && r.weight[i] >= min_weight) mine += r.weight[i];
      ties += key_of(r.logits[i]) == kept.key ? 1 : 0;
    }
    return mine;
  };
  if (s.top_p < 1.0f) {
    const double total = cta_sum(my_mass(0.0), r.sums);
    kept = cut(r, kept, s.top_p * total, [&](int i) { return r.weight[i]; });
  }
  const double min_weight = fmin(static_cast<double>(s.min_p), 1.0);
  const double mine = my_mass(min_weight);
  const double total = cta_sum(mine, r.sums);
  double sum = sum_below(r, mine);
  // The first kept id at which the running sum passes u * total; else the last kept one.
  __shared__ int32_t first, last;
  if (threadIdx.x == 0) first = INT32_MAX, last = -1;
  int32_t ties = my_ties_below();
  __syncthreads();
  for (int i = ids.x; i < ids.y; ++i) {
    if (keeps(r, kept, i, ties) && r.weight[i] >= min_weight) {
      sum += r.weight[i];
      atomicMax(&last, i);
      if (u * total < sum) {
        atomicMin(&first, i);
        break;
      }
    }
    ties += key_of(r.logits[i]) == kept.key ? 1 : 0;
  }
  __syncthreads();
  return first != INT32_MAX ? first : last;
}

__global__ void __launch_bounds__(kSampleThreads) sample_random_kernel(const __grid_constant__ SampleParams p) {
  __shared__ double sums[32];
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x);
  const int num = num_samples(p.view, p.sample_row, row);
  RowResult samples[1 + kMaxDraftTokens];
  for (int sample = 0; sample < num; ++sample) {
    const float* logits = p.logits_of(row, sample, num);
    const float* choices = p.choices_of(row, sample, num);
    const int32_t n = p.logits.cols;
    const LogitStats stats = row_stats(logits, n);
    const LogitStats best = choices == logits ? stats : row_stats(choices, n);
    const RowSampling& s = p.sampling[row];
    int32_t token = best.arg;
    if (stats.nan == 0 && s.temperature > 0.0f) {
      double* weight = static_cast<double*>(p.scratch) + static_cast<int64_t>(row) * n;
      const int2 ids = my_ids(n);
      for (int i = ids.x; i < ids.y; ++i) {
        weight[i] = exp((static_cast<double>(choices[i]) - best.max) / static_cast<double>(s.temperature));
      }
      __syncthreads();
      token = draw({choices, n, weight, sums}, s, uniform(s.seed, output_index(p, row, sample)));
    }
    samples[sample] =
        stats.nan != 0 ? RowResult{kTokenNan, 0.0f} : RowResult{token, logits[token] - stats.max - logf(stats.sum)};
  }
  __syncthreads();
  if (threadIdx.x == 0) end_row(p, row, samples, num);
}

}  // namespace

size_t sample_scratch_bytes(int32_t rows, int32_t vocab) {
  return static_cast<size_t>(rows) * static_cast<size_t>(vocab) * sizeof(double);
}

void sample_random(device::Stream& stream, const SampleParams& p) {
  check(p);
  launch(stream, "sample_random", sample_random_kernel,
         {.grid = static_cast<unsigned>(p.view.padded_rows), .cta = kSampleThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
