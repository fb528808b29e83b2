// The kernels around a library's products (split_linear.h).
#include "ops/cuda/split_linear.h"

#include "ops/cuda/epilogue.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFinishTokens = 4;  // of a thread, whose loads are on their way together

// Four floats as their high and low bf16 terms.
struct SplitFour {
  uint2 high, low;
  __device__ explicit SplitFour(float4 v) {
    split2<DType::kBF16>(v.x, v.y, high.x, low.x);
    split2<DType::kBF16>(v.z, v.w, high.y, low.y);
  }
};
__device__ void store_four(std::byte* bf16, int64_t element, uint2 v) {
  *reinterpret_cast<uint2*>(bf16 + 2 * element) = v;
}

// One cta a token.
__global__ void __launch_bounds__(kThreads) split_x_kernel(const __grid_constant__ SplitXParams p) {
  __shared__ float shared[32];
  wait_for_previous();
  let_next_start();
  const int64_t t = blockIdx.x;
  const bool live = t < p.num_valid.get();
  const auto* x = reinterpret_cast<const float4*>(p.x + t * p.x_stride);
  const auto* g = reinterpret_cast<const float4*>(p.norm_weight);
  const int fours = p.k / 4;
  float inv = 1;
  if (live && g != nullptr) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < fours; i += kThreads) {
      const float4 v = x[i];
      sum = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
    }
    inv = rsqrtf(cta_sum(sum, shared) / static_cast<float>(p.k) + p.norm_eps);
  }
  const int64_t row = t * p.form.terms * p.k;
  const int64_t low = row + (p.form.stacked > 1 ? int64_t{p.tokens} * p.k : p.k);
  for (int i = static_cast<int>(threadIdx.x); i < fours; i += kThreads) {
    float4 v = {0, 0, 0, 0};  // what a padding row of x holds is not looked at
    if (live) v = x[i];
    if (live && g != nullptr) {
      const float4 w = g[i];
      v = {v.x * inv * w.x, v.y * inv * w.y, v.z * inv * w.z, v.w * inv * w.w};
    }
    const SplitFour s(v);
    store_four(p.out, row + 4 * i, s.high);
    store_four(p.out, low + 4 * i, s.low);
    if (p.form.terms > 1) store_four(p.out, row + 2 * int64_t{p.k} + 4 * i, s.high);
  }
}

// One thread a unit of eight weights (weights.cuh).
template <DType W>
__global__ void __launch_bounds__(kThreads) split_weights_kernel(const __grid_constant__ SplitWeightsParams p) {
  const auto units = static_cast<unsigned>(p.k / kUnit);
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;  // a slice has bounds
  const auto row = static_cast<int>(index / units), unit = static_cast<int>(index % units);
  const int part = row >= p.columns.begin[2] && p.n[2] > 0 ? 2 : row >= p.columns.begin[1] && p.n[1] > 0 ? 1 : 0;
  const int r = row - p.columns.begin[part];
  const bool inside = row < p.columns.total;
  float w[kUnit] = {};
  if (inside && r < p.n[part]) {  // weights depend on nothing
    UnitCodec<W>::decode(UnitCodec<W>::load(p.weight[part] + r * weight_row_bytes<W>(p.k), unit), w);
  }
  wait_for_previous();
  let_next_start();
  if (!inside) return;
  const int64_t row_out = int64_t{row} * 3 * p.k;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const SplitFour s({w[4 * half], w[4 * half + 1], w[4 * half + 2], w[4 * half + 3]});
    const int64_t out = row_out + unit_element<W>(unit, half);
    store_four(p.out, out, s.high);
    store_four(p.out, out + p.k, s.high);
    store_four(p.out, out + 2 * int64_t{p.k}, s.low);
  }
}

// One thread a pair of rows of kFinishTokens tokens.
template <Epilogue E>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ FinishParams p) {
  wait_for_previous();
  let_next_start();
  const int pair = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (pair >= p.slice.num_pairs) return;
  const RowPair rows = pair_rows<E>(p.slice, pair);
  const int column0 = p.columns.begin[rows.part] + rows.row0;
  const int column1 = p.columns.begin[rows.part1] + max(rows.row1, 0);
  const int num_valid = p.slice.num_valid.get();
  const int first = static_cast<int>(blockIdx.y) * kFinishTokens;
  float y0[kFinishTokens], y1[kFinishTokens];
  PairInputs<E> in[kFinishTokens];
#pragma unroll
  for (int i = 0; i < kFinishTokens; ++i) {
    const int t = first + i;
    y0[i] = y1[i] = 0;
    if (t >= num_valid) continue;
    const float* y = p.y + int64_t{t} * p.columns.total;
    y0[i] = y[column0], y1[i] = y[column1];
    if (p.stacked > 1) {
      const float* low = y + int64_t{p.slice.tokens} * p.columns.total;
      y0[i] += low[column0], y1[i] += low[column1];
    }
    in[i].load(p.slice, rows, t, num_valid);
  }
#pragma unroll
  for (int i = 0; i < kFinishTokens; ++i) {
    const int t = first + i;
    if (t < p.slice.tokens) finish_pair<E>(p.slice, rows, in[i], t, num_valid, y0[i], y1[i]);
  }
}

unsigned ctas_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

void launch_split_x(device::Stream& stream, const char* op, const SplitXParams& p) {
  launch(stream, op, split_x_kernel, {.grid = static_cast<unsigned>(p.tokens), .cta = kThreads}, p);
}

void launch_split_weights(device::Stream& stream, const char* op, DType weight, const SplitWeightsParams& p) {
  const auto go = [&](void (*kernel)(SplitWeightsParams)) {
    const int64_t units = int64_t{p.columns.total} * (p.k / kUnit);
    launch(stream, op, kernel, {.grid = ctas_for(units), .cta = kThreads}, p);
  };
  switch (weight) {
    case DType::kF32: return go(split_weights_kernel<DType::kF32>);
    case DType::kF16: return go(split_weights_kernel<DType::kF16>);
    case DType::kQ4_0: return go(split_weights_kernel<DType::kQ4_0>);
    case DType::kQ4_1: return go(split_weights_kernel<DType::kQ4_1>);
    default: return go(split_weights_kernel<DType::kQ8_0>);  // bf16 is used where it lies
  }
}

void launch_finish(device::Stream& stream, const char* op, const FinishParams& p) {
  LaunchShape shape;
  shape.grid = {ctas_for(p.slice.num_pairs),
                static_cast<unsigned>((p.slice.tokens + kFinishTokens - 1) / kFinishTokens)};
  shape.cta = kThreads;
  dispatch_epilogue(p.slice.epilogue, [&](auto e) { launch(stream, op, finish_kernel<decltype(e)::value>, shape, p); });
}

}  // namespace bz::ops::cuda
