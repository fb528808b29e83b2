// Paged attention of single tokens, grouped-query: decode steps, and prompts token by token.
//
// A cluster of ctas shares one (token, KV head, up to GT query heads). Positions are walked in runs, run r by warp
// r % (warps of the cluster): a split at absolute positions (PAD-9b at a given cluster size). Inside a warp, hd / 8
// lanes hold one position, so a warp reads 32 * 16 bytes of K and of V at once; every lane keeps its own maximum, sum
// and output of the positions its group saw. They are merged at the end in a fixed order: lanes, warps, ctas.
//
// A row with seq_len 0 reads nothing and writes zeros here (PAD-5); a null block is skipped, never read (PAD-7).
#pragma once

#include <cooperative_groups.h>

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

inline constexpr int kAttentionWarps = 4;
// Positions of a run: four for every group of lanes that holds one, at most 16.
template <int HD>
inline constexpr int kRun = HD <= 64 ? 16 : 8;

// Eight elements of the cache as floats.
template <DType T>
struct KvVec;
template <>
struct KvVec<DType::kBF16> {
  uint4 raw{};
  __device__ void load(const std::byte* p) { raw = *reinterpret_cast<const uint4*>(p); }
  __device__ void get(float* f) const {
    const uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f[2 * i] = __uint_as_float(w[i] << 16), f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
};
template <>
struct KvVec<DType::kF16> {
  uint4 raw{};
  __device__ void load(const std::byte* p) { raw = *reinterpret_cast<const uint4*>(p); }
  __device__ void get(float* f) const {
    const uint32_t w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = __half22float2(*reinterpret_cast<const __half2*>(&w[i]));
      f[2 * i] = v.x, f[2 * i + 1] = v.y;
    }
  }
};
template <>
struct KvVec<DType::kF32> {
  float4 a{}, b{};
  __device__ void load(const std::byte* p) {
    a = reinterpret_cast<const float4*>(p)[0];
    b = reinterpret_cast<const float4*>(p)[1];
  }
  __device__ void get(float* f) const {
    f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w, f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
  }
};
template <DType T>
inline constexpr int kKvBytes = T == DType::kF32 ? 4 : 2;

// 2^x in one instruction; 0 for -inf. Off by two units in the last place at most.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Running softmax of GT heads over some positions, eight output dimensions.
template <int GT>
struct Softmax {
  float max[GT];
  float sum[GT];
  float out[GT][8];

  __device__ void clear() {
#pragma unroll
    for (int g = 0; g < GT; ++g) {
      max[g] = -INFINITY;
      sum[g] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[g][i] = 0;
    }
  }
  // Takes in another one's values of head g. -inf on both sides: saw nothing, stays zero.
  __device__ void merge(int g, float other_max, float other_sum, const float* other_out) {
    const float m = fmaxf(max[g], other_max);
    const float mine = max[g] == -INFINITY ? 0.0f : fast_exp2(max[g] - m);
    const float theirs = other_max == -INFINITY ? 0.0f : fast_exp2(other_max - m);
    max[g] = m;
    sum[g] = sum[g] * mine + other_sum * theirs;
#pragma unroll
    for (int i = 0; i < 8; ++i) out[g][i] = out[g][i] * mine + other_out[i] * theirs;
  }
};

// Scores are kept times log2(e): exp2 is one instruction.
inline constexpr float kLog2e = 1.44269504088896340736f;

template <DType T, int HD, int GT>
struct AttentionTile {
  static constexpr int kLanes = HD / 8;                               // of one position
  static constexpr int kGroups = kWarp / kLanes;                      // positions a warp holds at once
  static constexpr int kRounds = (kRun<HD> + kGroups - 1) / kGroups;  // to cover a run
  static constexpr int kAtOnce = kRounds < 4 ? kRounds : 4;           // rounds whose loads are in flight together

  float q[GT][8];
  Softmax<GT> softmax;

  KvVec<T> keys[kRounds], values[kRounds];

  // Fetches positions [begin, end) of a run of the block whose K and V pages start at k and v; `first` is the offset of
  // the run's first position inside the block. What does not count is not read (PAD-7).
  __device__ void load(const KvLayer& layer, const std::byte* k, const std::byte* v, int first, int begin, int end) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t dim_offset = lane % kLanes * 8 * kKvBytes<T>;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = r * kGroups + lane / kLanes;
      if (i < begin || i >= end) continue;
      keys[r].load(k + (first + i) * layer.k.entry_bytes + dim_offset);
      values[r].load(v + (first + i) * layer.v.entry_bytes + dim_offset);
    }
  }

  // Takes positions [begin, end) of the run that was fetched into the softmax.
  __device__ void absorb(int begin, int end) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int round0 = 0; round0 < kRounds; round0 += kAtOnce) {
      KvVec<T> some_keys[kAtOnce], some_values[kAtOnce];
      bool seen[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const int i = (round0 + r) * kGroups + lane / kLanes;
        seen[r] = i >= begin && i < end;
        if (!seen[r]) continue;
        some_keys[r] = keys[round0 + r];
        some_values[r] = values[round0 + r];
      }
      absorb(some_keys, some_values, seen);
    }
  }

  __device__ void absorb(const KvVec<T> (&keys)[kAtOnce], const KvVec<T> (&values)[kAtOnce],
                         const bool (&seen)[kAtOnce]) {
    float score[GT][kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      float key[8];
      keys[r].get(key);
#pragma unroll
      for (int g = 0; g < GT; ++g) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) s = fmaf(q[g][i], key[i], s);
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) s += __shfl_xor_sync(0xffffffffu, s, offset);
        score[g][r] = seen[r] ? s : -INFINITY;
      }
    }
    float weight[GT][kAtOnce];
#pragma unroll
    for (int g = 0; g < GT; ++g) {
      float m = softmax.max[g];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) m = fmaxf(m, score[g][r]);
      const float keep = softmax.max[g] == -INFINITY ? 0.0f : fast_exp2(softmax.max[g] - m);
      softmax.max[g] = m;
      softmax.sum[g] *= keep;
#pragma unroll
      for (int i = 0; i < 8; ++i) softmax.out[g][i] *= keep;
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        weight[g][r] = seen[r] ? fast_exp2(score[g][r] - m) : 0.0f;
        softmax.sum[g] += weight[g][r];
      }
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      float value[8];
      values[r].get(value);
#pragma unroll
      for (int g = 0; g < GT; ++g) {
#pragma unroll
        for (int i = 0; i < 8; ++i) softmax.out[g][i] = fmaf(weight[g][r], value[i], softmax.out[g][i]);
      }
    }
  }

  // Afterwards every lane holds the warp's whole, of its eight dimensions.
  __device__ void merge_lanes() {
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) {
#pragma unroll
      for (int g = 0; g < GT; ++g) {
        float other[8];
        const float m = __shfl_xor_sync(0xffffffffu, softmax.max[g], offset);
        const float s = __shfl_xor_sync(0xffffffffu, softmax.sum[g], offset);
#pragma unroll
        for (int i = 0; i < 8; ++i) other[i] = __shfl_xor_sync(0xffffffffu, softmax.out[g][i], offset);
        softmax.merge(g, m, s, other);
      }
    }
  }
};

// One warp's or one cta's partial result in shared memory.
template <int HD, int GT>
struct AttentionPartial {
  float max[GT];
  float sum[GT];
  float out[GT][HD];
};

inline constexpr int kMaxCluster = 8;

// The barrier of a cluster, in halves.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Head g, dimension d of `n` partials, merged in order; every load is independent of the others.
template <int N, int HD, int GT>
struct Merged {
  float max, sum, out;
  __device__ Merged(const AttentionPartial<HD, GT>* from, int n, int g, int d) {
    float m[N], s[N], o[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      m[i] = i < n ? from[i].max[g] : -INFINITY;
      s[i] = i < n ? from[i].sum[g] : 0.0f;
      o[i] = i < n ? from[i].out[g][d] : 0.0f;
    }
    max = -INFINITY, sum = 0, out = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) max = fmaxf(max, m[i]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float weight = m[i] == -INFINITY ? 0.0f : fast_exp2(m[i] - max);  // saw nothing: no -inf - -inf
      sum = fmaf(s[i], weight, sum);
      out = fmaf(o[i], weight, out);
    }
  }
};

// One warp's way through the runs of a row: run, run + stride, ... Runs are cut at block borders, so that one lookup
// serves a run, whatever the block size.
struct RunWalk {
  kv::RowId row;
  VisibleRange range;
  int block_size, runs_per_block, run, stride;
  int fresh_position;  // entries from here on are written by this step
  // The run found.
  bool found = false;
  const std::byte *k, *v;  // the block's pages, at the KV head
  int first;               // offset of the run in the block
  int begin, end, fresh;   // positions of the run that count; from `fresh` on they are this step's

  template <int HD>
  __device__ void start(const AttentionParams& p, int batch_row, int token, int warp, int num_warps) {
    const StepView& view = p.view;
    row = kv::RowId(view.row_index[batch_row]);
    range = visible_range(view, p.group, batch_row, token);
    fresh_position = view.positions[view.query_start[batch_row]];
    block_size = view.groups[p.group].view.block_size;
    runs_per_block = (block_size + kRun<HD> - 1) / kRun<HD>;
    stride = num_warps;
    const int first_run = range.begin / block_size * runs_per_block + range.begin % block_size / kRun<HD>;
    run = first_run / num_warps * num_warps + warp;
    if (run < first_run) run += num_warps;
  }

  // Looks up run `run`, or the next one of this warp whose block is not null (PAD-7).
  template <DType T, int HD>
  __device__ bool find(const AttentionParams& p, int kv_head) {
    const int64_t head_offset = static_cast<int64_t>(kv_head) * HD * kKvBytes<T>;
    for (found = false;; run += stride) {
      const int column = run / runs_per_block;
      first = run % runs_per_block * kRun<HD>;
      const int position = column * block_size + first;
      if (position >= range.end) return false;
      const kv::BlockId block = kv::block_at(p.view.groups[p.group].view, row, column);
      if (block == kv::kNullBlock) continue;
      k = p.layer.base + kv::page_offset(p.layer.k, block).value() + head_offset;
      v = p.layer.base + kv::page_offset(p.layer.v, block).value() + head_offset;
      begin = max(range.begin - position, 0);
      end = min(min(range.end - position, block_size - first), kRun<HD>);
      fresh = fresh_position - position;
      return found = true;
    }
  }
};

// Grid: (cluster, KV heads * chunks of GT query heads, tokens).
template <DType T, int HD, int GT>
__global__ void __launch_bounds__(kAttentionWarps* kWarp)
    attention_kernel(const __grid_constant__ AttentionParams p, int cluster_size) {
  using Tile = AttentionTile<T, HD, GT>;
  __shared__ AttentionPartial<HD, GT> partial[kAttentionWarps];
  __shared__ AttentionPartial<HD, GT> whole[kMaxCluster];  // of the cluster's ctas, in the first one
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int rank = static_cast<int>(blockIdx.x);
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
  const int chunks = (heads_per_kv + GT - 1) / GT;
  const int kv_head = static_cast<int>(blockIdx.y) / chunks;
  const int first_in_kv = static_cast<int>(blockIdx.y) % chunks * GT;
  const int first_head = kv_head * heads_per_kv + first_in_kv;
  const int num_heads = min(GT, heads_per_kv - first_in_kv);
  const int token = static_cast<int>(blockIdx.z);
  if (cluster_size > 1) cluster_arrive();

  // Before the kernel before this one has finished: lengths and tables are prepare's, and so is everything in the cache
  // but this step's own entries. So the first run's older positions are on their way while the queries are computed.
  Tile tile;
  tile.softmax.clear();
  const int batch_row = p.view.token_row[token];
  const int dim = lane % Tile::kLanes * 8;
  const bool live = row_is_live(p.view, batch_row);
  RunWalk walk;
  if (live) {
    walk.start<HD>(p, batch_row, token, rank * kAttentionWarps + warp, cluster_size * kAttentionWarps);
    if (walk.find<T, HD>(p, kv_head))
      tile.load(p.layer, walk.k, walk.v, walk.first, walk.begin, min(walk.end, walk.fresh));
  }
  wait_for_previous();
  let_next_start();
  if (live) {
#pragma unroll
    for (int g = 0; g < GT; ++g) {
      const float4* q =
          reinterpret_cast<const float4*>(p.q.row<float>(token) + (first_head + min(g, num_heads - 1)) * HD + dim);
      const float4 a = q[0], b = q[1];
      const float f[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) tile.q[g][i] = f[i] * (p.scale * kLog2e);
    }
    if (walk.found) tile.load(p.layer, walk.k, walk.v, walk.first, max(walk.begin, walk.fresh), walk.end);
#pragma unroll 1
    while (walk.found) {
      tile.absorb(walk.begin, walk.end);
      walk.run += walk.stride;
      if (walk.find<T, HD>(p, kv_head)) tile.load(p.layer, walk.k, walk.v, walk.first, walk.begin, walk.end);
    }
  }
  tile.merge_lanes();
  if (lane < Tile::kLanes) {
#pragma unroll
    for (int g = 0; g < GT; ++g) {
      if (lane == 0) {
        partial[warp].max[g] = tile.softmax.max[g];
        partial[warp].sum[g] = tile.softmax.sum[g];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) partial[warp].out[g][dim + i] = tile.softmax.out[g][i];
    }
  }
  __syncthreads();
  if (cluster_size > 1) cluster_wait();  // the first cta has started: its memory is there
  // Every cta sends its whole to the first one, which merges them in order. One of a cluster of one keeps it.
  for (int i = static_cast<int>(threadIdx.x); i < GT * HD; i += kAttentionWarps * kWarp) {
    const int g = i / HD, d = i % HD;
    const Merged<kAttentionWarps, HD, GT> mine(partial, kAttentionWarps, g, d);
    if (cluster_size == 1) {
      // no 0/0
      if (g < num_heads) {
        p.out.row<float>(token)[(first_head + g) * HD + d] = mine.sum == 0.0f ? 0.0f : __fdividef(mine.out, mine.sum);
      }
      continue;
    }
#if __CUDA_ARCH__ >= 900
    AttentionPartial<HD, GT>* to = cooperative_groups::this_cluster().map_shared_rank(whole, 0) + rank;
    to->out[g][d] = mine.out;
    if (d == 0) to->max[g] = mine.max, to->sum[g] = mine.sum;
#endif
  }
  if (cluster_size == 1) return;
  cluster_arrive();
  if (rank != 0) return;
  cluster_wait();
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * HD; i += kAttentionWarps * kWarp) {
    const int g = i / HD, d = i % HD;
    const Merged<kMaxCluster, HD, GT> all(whole, cluster_size, g, d);
    p.out.row<float>(token)[(first_head + g) * HD + d] = all.sum == 0.0f ? 0.0f : __fdividef(all.out, all.sum);
  }
}

template <DType T, int HD>
void launch_attention(device::Stream& stream, const AttentionParams& p, int cluster) {
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
  const int gt = heads_per_kv <= 4 ? heads_per_kv : 4;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(cluster),
                static_cast<unsigned>(p.layer.num_kv_heads * ((heads_per_kv + gt - 1) / gt)),
                static_cast<unsigned>(p.q.rows)};
  shape.cta = kAttentionWarps * kWarp;
  shape.cluster = cluster;
  switch (gt) {
    case 1: return launch(stream, "attention", attention_kernel<T, HD, 1>, shape, p, cluster);
    case 2: return launch(stream, "attention", attention_kernel<T, HD, 2>, shape, p, cluster);
    case 3: return launch(stream, "attention", attention_kernel<T, HD, 3>, shape, p, cluster);
    default: return launch(stream, "attention", attention_kernel<T, HD, 4>, shape, p, cluster);
  }
}

}  // namespace bz::ops::cuda
