// The end of attention: what warps and ctas saw of one row's positions becomes one softmax, in a fixed order (PAD-9b).
//
// Every warp leaves its partial result in shared memory; a cta merges its warps'. The ctas of a cluster share the row's
// outputs out among them: each sends every other one the slice that is its own, and merges what it got.
#pragma once

#include "ops/cuda/cluster.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/l2_policy.cuh"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kMaxCluster = 16;
// Scores are kept times log2(e): exp2 is one instruction.
inline constexpr float kLog2e = 1.44269504088896340736f;

// What a sum of weights 2^(s - old) is worth once the maximum is `now`; old -inf: saw nothing, worth nothing.
__device__ inline float rescale(float old, float now) { return old == -INFINITY ? 0.0f : fast_exp2(old - now); }

// One warp's result: G heads. A head that saw nothing: max -inf, sum 0, out 0.
template <int HD, int G>
struct AttentionPartial {
  static constexpr int kHd = HD;
  float max[G];
  float sum[G];
  float out[G][HD + 4];  // no bank conflicts between heads
};

// What the ctas of a cluster send this one.
template <int HD, int G>
struct ClusterSlices {
  float out[G * HD + kMaxCluster];  // [cta][slice]
  float max[kMaxCluster][G];
  float sum[kMaxCluster][G];
  uint64_t arrived;
};

// The weights of N partials merged into one. maxes, sums: n floats, `stride` apart.
template <int N>
struct MergedWeights {
  float max = -INFINITY, sum = 0, weight[N];
  __device__ MergedWeights(const float* maxes, const float* sums, int stride, int n) {
    float m[N], s[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      m[i] = i < n ? maxes[i * stride] : -INFINITY;
      s[i] = i < n ? sums[i * stride] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) max = fmaxf(max, m[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      weight[i] = rescale(m[i], max);
      sum = fmaf(s[i], weight[i], sum);
    }
  }
};

__device__ inline float quotient(float out, float sum) { return sum == 0.0f ? 0.0f : __fdividef(out, sum); }

// The slice of `n` outputs that cta `rank` of a cluster has.
struct Slice {
  int size, begin, end;
  __device__ Slice(int n, int rank, int cluster_size)
      : size((n + cluster_size - 1) / cluster_size), begin(min(rank * size, n)), end(min(begin + size, n)) {}
  __device__ int length() const { return end - begin; }
};

// Before anything else, by all threads of the first cluster_size ctas of a cluster, more than one; the others of it
// have nothing to do and return. Gets ready for num_heads heads.
template <int HD, int G>
__device__ void expect_slices(ClusterSlices<HD, G>& slices, int num_heads, int cluster_size) {
  if (threadIdx.x == 0) {
    const int floats = Slice(num_heads * HD, static_cast<int>(cluster_rank()), cluster_size).length() + 2 * num_heads;
    expect_bytes(&slices.arrived, static_cast<uint32_t>(floats * cluster_size * 4));
  }
  cluster_arrive();
}

// Of each output i of num_heads heads, [num_heads][HD]: take(i, what this cta's warps saw of it, their merged weights).
// partials: a warp's each, `stride` bytes apart.
template <class Partial, class Take>
__device__ void merge_warps(const std::byte* partials, int stride, int num_heads, Take take) {
  constexpr int kHd = Partial::kHd;
  const auto* first = reinterpret_cast<const Partial*>(partials);
  const int floats = stride / 4;
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * kHd; i += kAttentionWarps * kWarp) {
    const int g = i / kHd, d = i % kHd;
    const MergedWeights<kAttentionWarps> w(&first->max[g], &first->sum[g], floats, kAttentionWarps);
    float o = 0;
#pragma unroll
    for (int k = 0; k < kAttentionWarps; ++k) o = fmaf((&first->out[g][d])[k * floats], w.weight[k], o);
    take(i, o, w);
  }
}

// Outputs of heads [0, num_heads) of one row, out: [num_heads][HD], from the partials of this cta's warps. policy: of
// the stores. All threads call it, after __syncthreads().
template <class Partial>
__device__ void merge_in_cta(const std::byte* partials, int stride, float* out, uint64_t policy, int num_heads) {
  merge_warps<Partial>(partials, stride, num_heads,
                       [&](int i, float o, const auto& w) { store(out + i, quotient(o, w.sum), policy); });
}

// The same from those of all these ctas: all their threads call it.
template <int HD, int G>
__device__ void merge_in_cluster(const std::byte* partials, int stride, ClusterSlices<HD, G>& slices, float* out,
                                 uint64_t policy, int num_heads, int rank, int cluster_size) {
  const int n = num_heads * HD, size = Slice(n, 0, cluster_size).size;
  cluster_wait();  // every cta has started: its memory is there
  merge_warps<AttentionPartial<HD, G>>(partials, stride, num_heads, [&](int i, float o, const auto& w) {
    send(&slices.out[rank * size + i % size], o, &slices.arrived, i / size);
    const int g = i / HD, d = i % HD;
    if (d >= cluster_size) return;  // HD >= kMaxCluster: one thread a cta
    send(&slices.max[rank][g], w.max, &slices.arrived, d);
    send(&slices.sum[rank][g], w.sum, &slices.arrived, d);
  });
  wait_for_bytes(&slices.arrived);
  const Slice slice(n, rank, cluster_size);
  for (int i = slice.begin + static_cast<int>(threadIdx.x); i < slice.end; i += kAttentionWarps * kWarp) {
    const int g = i / HD;
    const MergedWeights<kMaxCluster> w(&slices.max[0][g], &slices.sum[0][g], G, cluster_size);
    float o = 0;
#pragma unroll
    for (int k = 0; k < kMaxCluster; ++k) {
      if (k < cluster_size) o = fmaf(slices.out[k * size + i - slice.begin], w.weight[k], o);
    }
    store(out + i, quotient(o, w.sum), policy);
  }
}

}  // namespace bz::ops::cuda
