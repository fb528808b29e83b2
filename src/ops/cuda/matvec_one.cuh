// Matrix times one vector, for a K that fits in the registers of a warp: the decode step of a single stream.
//
// One warp, one pair of weight rows. Before it waits for the kernel before it, it has fetched and decoded its weights,
// and multiplied the norm's weight in. What is left then is the least there can be: fetch x, multiply, sum over the
// lanes, finish. No shared memory, no barrier; the norm's scale is one more sum over the lanes.
//
// The same order of sums as matvec.cuh.
#pragma once

#include "ops/cuda/epilogue.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {

inline constexpr int kOneWarps = 4;

template <DType W, Epilogue E, int UNITS>
__global__ void __launch_bounds__(kOneWarps* kWarp) matvec_one_kernel(const __grid_constant__ LinearParams p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int pair = static_cast<int>(blockIdx.x) * kOneWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int num_units = p.k / kUnit;
  let_next_start();
  if (pair >= p.num_pairs) return;  // others of the grid wait for the kernel before it
  const RowPair rows = pair_rows<E>(p, pair);
  const int64_t row_size = weight_row_bytes<W>(p.k);
  const std::byte* w0 = p.parts[rows.part].weight + rows.row0 * row_size;
  const std::byte* w1 = p.parts[rows.part1].weight + max(rows.row1, 0) * row_size;
  float weights[UNITS][2][kUnit];
  {
    typename UnitCodec<W>::Raw raw[UNITS][2];
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      const int unit = min(i * kWarp + lane, num_units - 1);
      raw[i][0] = UnitCodec<W>::load(w0, unit);
      raw[i][1] = UnitCodec<W>::load(w1, unit);
    }
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      UnitCodec<W>::decode(raw[i][0], weights[i][0]);
      UnitCodec<W>::decode(raw[i][1], weights[i][1]);
    }
  }
  if (p.norm_weight != nullptr) {
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
      const int e = unit_element(min(i * kWarp + lane, num_units - 1));
      const float4 g[2] = {__ldg(reinterpret_cast<const float4*>(p.norm_weight + e)),
                           __ldg(reinterpret_cast<const float4*>(p.norm_weight + e + 16))};
      const float* f = reinterpret_cast<const float*>(g);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) weights[i][0][k] *= f[k], weights[i][1][k] *= f[k];
    }
  }

  wait_for_previous();
  const int num_valid = p.num_valid.get();
  PairInputs<E> in;
  if (lane == 0) in.load(p, rows, 0, num_valid);
  float y0 = 0, y1 = 0, squares = 0;
  float4 x[UNITS][2];
#pragma unroll
  for (int i = 0; i < UNITS; ++i) {
    const int unit = i * kWarp + lane;
    const int e = unit_element(min(unit, num_units - 1));
    x[i][0] = *reinterpret_cast<const float4*>(p.x + e);
    x[i][1] = *reinterpret_cast<const float4*>(p.x + e + 16);
    if (unit >= num_units) x[i][0] = x[i][1] = {0, 0, 0, 0};
  }
#pragma unroll
  for (int i = 0; i < UNITS; ++i) {
    const float* f = reinterpret_cast<const float*>(x[i]);
#pragma unroll
    for (int k = 0; k < kUnit; ++k) {
      y0 = fmaf(weights[i][0][k], f[k], y0);
      y1 = fmaf(weights[i][1][k], f[k], y1);
      squares = fmaf(f[k], f[k], squares);
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    y0 += __shfl_xor_sync(0xffffffffu, y0, offset);
    y1 += __shfl_xor_sync(0xffffffffu, y1, offset);
    squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  }
  if (lane != 0) return;
  const float scale =
      p.norm_weight == nullptr ? 1.0f : rsqrtf(squares / static_cast<float>(p.k) + p.norm_eps);
  finish_pair<E>(p, rows, in, 0, num_valid, y0 * scale, y1 * scale);
}

// REQUIRES: p.tokens == 1, p.k <= kMaxOneK.
template <DType W>
void launch_matvec_one(device::Stream& stream, const char* op, const LinearParams& p) {
  LaunchShape shape;
  shape.grid = static_cast<unsigned>((p.num_pairs + kOneWarps - 1) / kOneWarps);
  shape.cta = kOneWarps * kWarp;
  dispatch_epilogue(p.epilogue, [&](auto e) {
    constexpr Epilogue E = decltype(e)::value;
    if (p.k <= 3 * kWarp * kUnit) return launch(stream, op, matvec_one_kernel<W, E, 3>, shape, p);
    return launch(stream, op, matvec_one_kernel<W, E, 6>, shape, p);
  });
}

}  // namespace bz::ops::cuda
