// Matrix times a few vectors, straight from the GGUF blocks, in f32.
//
// One warp computes a pair of weight rows for up to TOK tokens; its lanes walk K in units of eight elements
// (weights.cuh). The weights of the first step are fetched before the kernel waits for the one before it: they depend
// on nothing, so their latency hides behind its end. Little code on purpose: a small kernel is mostly instruction
// fetch. x is staged once in shared memory, in two planes (first and second halves of units) that lanes read without
// bank conflicts; the norm's weight goes in there, its scale at the end.
//
// The order of sums depends on K alone: lane l takes units l, l + 32, ..., then a fixed tree over lanes.
#pragma once

#include "ops/cuda/epilogue.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {

inline constexpr int kUnitsPerStep = 4;                   // of one lane
inline constexpr int kStepUnits = kUnitsPerStep * kWarp;  // of a warp

// The weights of one step of K of a pair of rows.
template <DType W>
struct MatvecStep {
  typename UnitCodec<W>::Raw row0[kUnitsPerStep];
  typename UnitCodec<W>::Raw row1[kUnitsPerStep];

  __device__ void load(const std::byte* w0, const std::byte* w1, int step, int num_units) {
#pragma unroll
    for (int i = 0; i < kUnitsPerStep; ++i) {
      const int unit = step * kStepUnits + i * kWarp + static_cast<int>(threadIdx.x) % kWarp;
      if (unit >= num_units) break;
      row0[i] = UnitCodec<W>::load(w0, unit);
      row1[i] = UnitCodec<W>::load(w1, unit);
    }
  }
};

__device__ inline float dot8(const float* w, const float4& low, const float4& high, float sum) {
  sum = fmaf(w[0], low.x, sum);
  sum = fmaf(w[1], low.y, sum);
  sum = fmaf(w[2], low.z, sum);
  sum = fmaf(w[3], low.w, sum);
  sum = fmaf(w[4], high.x, sum);
  sum = fmaf(w[5], high.y, sum);
  sum = fmaf(w[6], high.z, sum);
  return fmaf(w[7], high.w, sum);
}

// x of this cta's tokens: [TOK][2 planes][k / 2] floats; and the scale of each token's norm. A thread has AT_ONCE loads
// on their way: this lies between the end of the kernel before and the first product. between(): once, by all threads,
// behind the first loads.
template <DType W, int TOK, int WARPS, int AT_ONCE, class Between>
__device__ inline void stage_x(const LinearParams& p, int first_token, int num_valid, float* x, float* scale,
                               Between&& between) {
  constexpr int kThreads = WARPS * kWarp;
  __shared__ float sums[kWarp];
  const int num_quads = p.k / 4;
#pragma unroll 1
  for (int t = 0; t < TOK; ++t) {
    const int token = first_token + t;
    const bool live = token < num_valid;  // what a padding row holds is dropped, never used (PAD-9a)
    const auto* source = reinterpret_cast<const float4*>(p.x + min(token, p.tokens - 1) * p.x_stride);
    const auto* norm = reinterpret_cast<const float4*>(p.norm_weight);
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first < num_quads; first += AT_ONCE * kThreads) {
      const int mine = first + static_cast<int>(threadIdx.x);
      float4 v[AT_ONCE];
#pragma unroll
      for (int n = 0; n < AT_ONCE; ++n) {
        if (mine + n * kThreads < num_quads) v[n] = source[mine + n * kThreads];
      }
      if (t == 0 && first == 0) between();
#pragma unroll
      for (int n = 0; n < AT_ONCE; ++n) {
        const int i = mine + n * kThreads;
        if (i >= num_quads) break;
        if (!live) v[n] = {0, 0, 0, 0};
        sum = fmaf(v[n].w, v[n].w, fmaf(v[n].z, v[n].z, fmaf(v[n].y, v[n].y, fmaf(v[n].x, v[n].x, sum))));
        const float4 g = norm != nullptr ? __ldg(norm + i) : float4{1, 1, 1, 1};
        *reinterpret_cast<float4*>(x + (t * 2 + quad_half<W>(i)) * (p.k / 2) + quad_unit<W>(i) * 4) = {
            v[n].x * g.x, v[n].y * g.y, v[n].z * g.z, v[n].w * g.w};
      }
    }
    if (norm == nullptr) continue;
    sum = cta_sum(sum, sums);
    if (threadIdx.x == 0) scale[t] = rsqrtf(sum / static_cast<float>(p.k) + p.norm_eps);
  }
  __syncthreads();
}

// Asks for the norm's weights, which stage_x will need.
__device__ inline void prefetch_norm(const LinearParams& p) {
  constexpr int kLineFloats = 32;
  const int i = static_cast<int>(threadIdx.x) * kLineFloats;
  if (p.norm_weight != nullptr && i < p.k) asm volatile("prefetch.global.L2 [%0];" ::"l"(p.norm_weight + i));
}

// One unit of both rows times x (stage_x), for every token.
template <int TOK>
__device__ inline void add_unit(const LinearParams& p, int unit, const float* w0, const float* w1, const float* x,
                                float (&sum)[2][TOK]) {
#pragma unroll
  for (int t = 0; t < TOK; ++t) {
    const float4 low = *reinterpret_cast<const float4*>(x + (t * 2) * (p.k / 2) + unit * 4);
    const float4 high = *reinterpret_cast<const float4*>(x + (t * 2 + 1) * (p.k / 2) + unit * 4);
    sum[0][t] = dot8(w0, low, high, sum[0][t]);
    sum[1][t] = dot8(w1, low, high, sum[1][t]);
  }
}

// The sums of token t, over the lanes, go to lane t.
template <int TOK>
__device__ inline void sum_over_lanes(const float (&sum)[2][TOK], float& y0, float& y1) {
#pragma unroll
  for (int t = 0; t < TOK; ++t) {
    const float a = warp_sum(sum[0][t]), b = warp_sum(sum[1][t]);
    if (static_cast<int>(threadIdx.x) % kWarp == t) y0 = a, y1 = b;
  }
}

template <DType W, int TOK>
__device__ inline void compute_step(const LinearParams& p, int step, const MatvecStep<W>& weights, const float* x,
                                    float (&sum)[2][TOK]) {
  const int num_units = p.k / kUnit;
#pragma unroll
  for (int i = 0; i < kUnitsPerStep; ++i) {
    const int unit = step * kStepUnits + i * kWarp + static_cast<int>(threadIdx.x) % kWarp;
    if (unit >= num_units) break;
    float w0[kUnit], w1[kUnit];
    UnitCodec<W>::decode(weights.row0[i], w0);
    UnitCodec<W>::decode(weights.row1[i], w1);
    add_unit<TOK>(p, unit, w0, w1, x, sum);
  }
}

template <DType W, Epilogue E, int TOK, int WARPS>
__global__ void __launch_bounds__(WARPS* kWarp) matvec_kernel(const __grid_constant__ LinearParams p) {
  extern __shared__ float x[];
  __shared__ float scale[TOK];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int num_units = p.k / kUnit, num_steps = (num_units + kStepUnits - 1) / kStepUnits;
  const int64_t row_size = weight_row_bytes<W>(p.k);
  const int stride = static_cast<int>(gridDim.x) * WARPS;
  int pair = static_cast<int>(blockIdx.x) * WARPS + static_cast<int>(threadIdx.x) / kWarp;

  RowPair rows;
  const std::byte *w0, *w1;
  MatvecStep<W> now, next;
  const auto begin_pair = [&] {
    rows = pair_rows<E>(p, pair < p.num_pairs ? pair : 0);
    w0 = p.parts[rows.part].weight + rows.row0 * row_size;
    w1 = p.parts[rows.part1].weight + max(rows.row1, 0) * row_size;
    now.load(w0, w1, 0, num_units);
  };
  begin_pair();
  wait_for_previous();
  let_next_start();
  const int num_valid = p.num_valid.get();
  const int first_token = static_cast<int>(blockIdx.y) * TOK;
  stage_x<W, TOK, WARPS, 4>(p, first_token, num_valid, x, scale, [] {});

#pragma unroll 1
  while (pair < p.num_pairs) {
    float sum[2][TOK] = {};
#pragma unroll 1
    for (int step = 0; step < num_steps; ++step) {
      next.load(w0, w1, step + 1, num_units);
      compute_step<W, TOK>(p, step, now, x, sum);
      now = next;
    }
    float y0 = 0, y1 = 0;  // of token `lane`
    sum_over_lanes<TOK>(sum, y0, y1);
    if (lane < TOK && first_token + lane < p.tokens) {
      const float factor = p.norm_weight != nullptr ? scale[lane] : 1.0f;
      finish_pair<E>(p, rows, first_token + lane, num_valid, y0 * factor, y1 * factor);
    }
    pair += stride;
    begin_pair();
  }
}

template <DType W>
void launch_matvec(device::Stream& stream, const char* op, const LinearParams& p, const MatvecConfig& config) {
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(config.num_ctas),
                static_cast<unsigned>((p.tokens + config.tokens_per_cta - 1) / config.tokens_per_cta)};
  shape.cta = static_cast<unsigned>(config.warps * kWarp);
  shape.shared_bytes = sizeof(float) * static_cast<size_t>(p.k) * static_cast<size_t>(config.tokens_per_cta);
  dispatch_epilogue(p.epilogue, [&](auto e) {
    constexpr Epilogue E = decltype(e)::value;
    switch (config.tokens_per_cta) {
      case 1:
        if (config.warps == 8) return launch(stream, op, matvec_kernel<W, E, 1, 8>, shape, p);
        return launch(stream, op, matvec_kernel<W, E, 1, 4>, shape, p);
      case 2: return launch(stream, op, matvec_kernel<W, E, 2, 4>, shape, p);
      default: return launch(stream, op, matvec_kernel<W, E, 4, 4>, shape, p);
    }
  });
}

}  // namespace bz::ops::cuda
