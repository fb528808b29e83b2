// Attention without tensor cores: caches of f32, and heads smaller than 64.
//
// hd / 8 lanes hold one position, so a warp reads 32 * 16 bytes of K and of V at once; every lane keeps its own
// maximum, sum and output of the positions its group saw, and lanes are merged in order at the end.
#pragma once

#include "ops/cuda/attention_launch.cuh"

namespace bz::ops::cuda {

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

template <DType T, int HD, int G>
struct ScalarTile {
  static constexpr int kHd = HD;
  static constexpr int kHeads = G;
  static constexpr int kRun = HD <= 64 ? 16 : 8;
  static constexpr int kElementBytes = T == DType::kF32 ? 4 : 2;
  static constexpr int kWarpBytes = (sizeof(AttentionPartial<HD, G>) + 255) / 256 * 256;
  static constexpr int kLanes = HD / 8;                           // of one position
  static constexpr int kGroups = kWarp / kLanes;                  // positions a warp holds at once
  static constexpr int kRounds = (kRun + kGroups - 1) / kGroups;  // to cover a run

  KvVec<T> keys[kRounds], values[kRounds];
  float query[G][8];
  float scores[G][kRounds];  // then weights
  bool counts[kRounds];
  float max[G], sum[G] = {}, out[G][8] = {};

  __device__ ScalarTile() {
#pragma unroll
    for (int h = 0; h < G; ++h) max[h] = -INFINITY;
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int first_dim() { return lane() % kLanes * 8; }
  __device__ static int position(int round) { return round * kGroups + lane() / kLanes; }

  template <class Ready>
  __device__ void attend(const AttentionParams& p, RunWalk<kRun>& walk, const float* q, int num_heads, std::byte*,
                         Ready ready) {
    wait_for_previous();
    let_next_start();
    ready();
    load_queries(q, num_heads, p.scale * kLog2e);
#pragma unroll 1
    while (!walk.done()) {
      const KvRun run = walk.take();
      load(keys, run.k, p.layer.k.entry_bytes, run.begin, run.end);
      load(values, run.v, p.layer.v.entry_bytes, run.begin, run.end);
      score(run);
      weigh();
      add_values();
    }
  }

  __device__ static void load(KvVec<T> (&to)[kRounds], const std::byte* from, int64_t entry_bytes, int begin, int end) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int i = position(r);
      if (i >= begin && i < end) to[r].load(from + i * entry_bytes + first_dim() * kElementBytes);
    }
  }
  __device__ void load_queries(const float* q, int num_heads, float scale) {
#pragma unroll
    for (int h = 0; h < G; ++h) {
      const auto* from = reinterpret_cast<const float4*>(q + min(h, num_heads - 1) * HD + first_dim());
      const float4 a = from[0], b = from[1];
      const float f[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) query[h][i] = f[i] * scale;
    }
  }

  __device__ void score(const KvRun& run) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      counts[r] = position(r) >= run.begin && position(r) < run.end;
      float key[8];
      keys[r].get(key);
#pragma unroll
      for (int h = 0; h < G; ++h) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) s = fmaf(query[h][i], key[i], s);
#pragma unroll
        for (int offset = kLanes / 2; offset > 0; offset /= 2) s += __shfl_xor_sync(0xffffffffu, s, offset);
        scores[h][r] = counts[r] ? s : -INFINITY;
      }
    }
  }
  __device__ void weigh() {
#pragma unroll
    for (int h = 0; h < G; ++h) {
      float m = max[h];
#pragma unroll
      for (int r = 0; r < kRounds; ++r) m = fmaxf(m, scores[h][r]);
      const float keep = rescale(max[h], m);
      max[h] = m;
      sum[h] *= keep;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[h][i] *= keep;
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        scores[h][r] = counts[r] ? fast_exp2(scores[h][r] - m) : 0.0f;
        sum[h] += scores[h][r];
      }
    }
  }
  __device__ void add_values() {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      if (!counts[r]) continue;  // not 0 * what was never read (PAD-7)
      float value[8];
      values[r].get(value);
#pragma unroll
      for (int h = 0; h < G; ++h) {
#pragma unroll
        for (int i = 0; i < 8; ++i) out[h][i] = fmaf(scores[h][r], value[i], out[h][i]);
      }
    }
  }

  // Takes in what another lane saw of head h. -inf on both sides: saw nothing, stays zero.
  __device__ void merge(int h, int offset) {
    const float other_max = __shfl_xor_sync(0xffffffffu, max[h], offset);
    const float other_sum = __shfl_xor_sync(0xffffffffu, sum[h], offset);
    const float m = fmaxf(max[h], other_max);
    const float mine = rescale(max[h], m), theirs = rescale(other_max, m);
    max[h] = m;
    sum[h] = sum[h] * mine + other_sum * theirs;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[h][i] = out[h][i] * mine + __shfl_xor_sync(0xffffffffu, out[h][i], offset) * theirs;
    }
  }
  __device__ void store(AttentionPartial<HD, G>& to, int num_heads) {
#pragma unroll
    for (int h = 0; h < G; ++h) {
#pragma unroll
      for (int offset = kLanes; offset < kWarp; offset *= 2) merge(h, offset);
      if (h >= num_heads || lane() >= kLanes) continue;
      if (lane() == 0) to.max[h] = max[h], to.sum[h] = sum[h];
#pragma unroll
      for (int i = 0; i < 8; ++i) to.out[h][first_dim() + i] = out[h][i];
    }
  }
};

template <DType T, int HD>
void launch_attention_scalar(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan) {
  switch (p.num_heads / p.layer.num_kv_heads) {
    case 1: return launch_attention_tile<ScalarTile<T, HD, 1>>(stream, p, plan);
    case 2: return launch_attention_tile<ScalarTile<T, HD, 2>>(stream, p, plan);
    case 3: return launch_attention_tile<ScalarTile<T, HD, 3>>(stream, p, plan);
    default: return launch_attention_tile<ScalarTile<T, HD, 4>>(stream, p, plan);
  }
}

}  // namespace bz::ops::cuda
