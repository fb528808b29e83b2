// Matrix times one vector, for a K that fits in the registers of a warp: the decode step of a single stream.
//
// One warp, one pair of weight rows. Before it waits for the kernel before it, it has fetched and decoded its weights.
// What is left then is the least there can be: fetch x, multiply, sum over the lanes, finish. No shared memory, no
// barrier; the norm's scale is one more sum over the lanes.
//
// The next kernel is let start before the wait too, so that what it fetches (attention: tables and old entries) comes
// while this one waits: 30 us of a SmolLM2 token's 417 on an H200. Behind gate and up it is not: their warps are many,
// and those of the next kernel beside them cost 12 us.
//
// The same order of sums as matvec.cuh.
#pragma once

#include <algorithm>

#include "ops/cuda/epilogue.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {

inline constexpr int kOneWarps = 4;
inline constexpr int kOneCtasPerSm = 6;  // more pairs are walked in a loop, the next one's weights on their way

// A lane's weights of a pair of rows.
template <DType W, int UNITS>
struct OnePair {
  typename UnitCodec<W>::Raw raw[UNITS][2];

  template <Epilogue E>
  __device__ RowPair load(const LinearParams& p, int pair) {
    const RowPair rows = pair_rows<E>(p, pair);
    const int64_t row_size = weight_row_bytes<W>(p.k);
    const std::byte* w0 = p.parts[rows.part].weight + rows.row0 * row_size;
    const std::byte* w1 = p.parts[rows.part1].weight + max(rows.row1, 0) * row_size;
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      const int unit = min(i * kWarp + static_cast<int>(threadIdx.x) % kWarp, p.k / kUnit - 1);
      raw[i][0] = UnitCodec<W>::load(w0, unit);
      raw[i][1] = UnitCodec<W>::load(w1, unit);
    }
    return rows;
  }
  __device__ void decode(float (&weights)[UNITS][2][kUnit]) const {
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      UnitCodec<W>::decode(raw[i][0], weights[i][0]);
      UnitCodec<W>::decode(raw[i][1], weights[i][1]);
    }
  }
};

// A lane's part of a vector of k floats, as it multiplies weights of type W; zeros past its end.
template <DType W, int UNITS>
struct OneVector {
  float v[UNITS][kUnit];

  __device__ void load(const float* x, int k) {
    const int num_units = k / kUnit;
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      const int unit = i * kWarp + static_cast<int>(threadIdx.x) % kWarp;
      const int u = min(unit, num_units - 1);
      float4 low = *reinterpret_cast<const float4*>(x + unit_element<W>(u, 0));
      float4 high = *reinterpret_cast<const float4*>(x + unit_element<W>(u, 1));
      if (unit >= num_units) low = high = {0, 0, 0, 0};
      v[i][0] = low.x, v[i][1] = low.y, v[i][2] = low.z, v[i][3] = low.w;
      v[i][4] = high.x, v[i][5] = high.y, v[i][6] = high.z, v[i][7] = high.w;
    }
  }
};

template <Epilogue E>
inline constexpr bool kLetsNextEarly = E != Epilogue::kSiluMul;

template <DType W, Epilogue E, int UNITS>
__global__ void __launch_bounds__(kOneWarps* kWarp) matvec_one_kernel(const __grid_constant__ LinearParams p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int stride = static_cast<int>(gridDim.x) * kOneWarps;
  int pair = static_cast<int>(blockIdx.x) * kOneWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (pair >= p.num_pairs) return;  // others of the grid wait for the kernel before it
  if constexpr (kLetsNextEarly<E>) let_next_start();
  OnePair<W, UNITS> ahead;
  RowPair rows = ahead.template load<E>(p, pair);
  OneVector<W, UNITS> norm, x;
  if (p.norm_weight != nullptr) norm.load(p.norm_weight, p.k);
  float weights[UNITS][2][kUnit];
  ahead.decode(weights);

  wait_for_previous();
  if constexpr (!kLetsNextEarly<E>) let_next_start();
  const int num_valid = p.num_valid.get();
  x.load(p.x, p.k);
  PairInputs<E> in;
  if (lane == 0) in.load(p, rows, 0, num_valid);
  float squares = 0;
  if (p.norm_weight != nullptr) {
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        squares = fmaf(x.v[i][k], x.v[i][k], squares);
        x.v[i][k] *= norm.v[i][k];
      }
    }
  }
  float scale = 1.0f;
#pragma unroll 1
  for (bool first = true;; first = false) {
    const int next = pair + stride;
    RowPair next_rows;
    if (next < p.num_pairs) next_rows = ahead.template load<E>(p, next);
    float y0 = 0, y1 = 0;
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        y0 = fmaf(weights[i][0][k], x.v[i][k], y0);
        y1 = fmaf(weights[i][1][k], x.v[i][k], y1);
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      y0 += __shfl_xor_sync(0xffffffffu, y0, offset);
      y1 += __shfl_xor_sync(0xffffffffu, y1, offset);
      squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    }
    if (first && p.norm_weight != nullptr) scale = rsqrtf(squares / static_cast<float>(p.k) + p.norm_eps);
    if (lane == 0) {
      if (!first) in.load(p, rows, 0, num_valid);
      finish_pair<E>(p, rows, in, 0, num_valid, y0 * scale, y1 * scale);
    }
    if (next >= p.num_pairs) return;
    pair = next;
    rows = next_rows;
    ahead.decode(weights);
  }
}

// REQUIRES: p.tokens == 1, p.k <= kMaxOneK.
template <DType W>
void launch_matvec_one(device::Stream& stream, const char* op, const LinearParams& p) {
  LaunchShape shape;
  const int32_t most = limits_of(stream).num_sms * kOneCtasPerSm;
  shape.grid = static_cast<unsigned>(std::min((p.num_pairs + kOneWarps - 1) / kOneWarps, most));
  shape.cta = kOneWarps * kWarp;
  dispatch_epilogue(p.epilogue, [&](auto e) {
    constexpr Epilogue E = decltype(e)::value;
    if (p.k <= 3 * kWarp * kUnit) return launch(stream, op, matvec_one_kernel<W, E, 3>, shape, p);
    return launch(stream, op, matvec_one_kernel<W, E, 6>, shape, p);
  });
}

}  // namespace bz::ops::cuda
