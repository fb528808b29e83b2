// The ops that treat every row alone: one cta a row; rows past num_valid become zeros (PAD-5).
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/weight_types.h"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = 128;

__device__ void zero_row(const TensorRef& out, int t) {
  for (int i = static_cast<int>(threadIdx.x); i < out.cols; i += static_cast<int>(blockDim.x)) out.row<float>(t)[i] = 0;
}

template <DType T>
__global__ void embed_kernel(const __grid_constant__ EmbedParams p) {
  wait_for_previous();
  let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.num_valid.get()) return zero_row(p.out, t);
  const int32_t id = p.token_ids[t];
  if (id < 0 || id >= p.weight.n) __trap();  // the scheduler checks every prompt; sample makes the rest
  const std::byte* row = p.weight.data + id * weight_row_bytes<T>(p.weight.k);
  float* out = p.out.row<float>(t);
  for (int unit = static_cast<int>(threadIdx.x); unit < p.weight.k / kUnit; unit += kThreads) {
    float w[kUnit];
    UnitCodec<T>::decode(UnitCodec<T>::load(row, unit), w);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) out[unit_element<T>(unit, i / 4) + i % 4] = w[i];
  }
}

__global__ void rms_norm_kernel(const __grid_constant__ RmsNormParams p) {
  __shared__ float shared[32];
  wait_for_previous();
  let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.num_valid.get()) return zero_row(p.out, t);
  const float* x = p.x.row<float>(t);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.x.cols; i += kThreads) sum += x[i] * x[i];
  sum = cta_sum(sum, shared);
  const float inv = rsqrtf(sum / static_cast<float>(p.x.cols) + p.eps);
  float* out = p.out.row<float>(t);
  for (int i = static_cast<int>(threadIdx.x); i < p.x.cols; i += kThreads) out[i] = x[i] * inv * p.weight[i];
}

__global__ void rope_table_kernel(const __grid_constant__ RopeTableParams p) {
  wait_for_previous();
  let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.num_valid.get()) return zero_row(p.cos_sin, t);
  const int half = p.cos_sin.cols / 2;
  float* out = p.cos_sin.row<float>(t);
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    double sin_value, cos_value;
    sincos(p.positions[t] * p.inv_freq[i], &sin_value, &cos_value);
    out[i] = static_cast<float>(cos_value);
    out[half + i] = static_cast<float>(sin_value);
  }
}

// One head's pair i, in place.
__device__ void rotate(float* head, const float* cos_sin, int i, int hd, RopeStyle style) {
  const int half = hd / 2;
  float& a = style == RopeStyle::kAdjacentPairs ? head[2 * i] : head[i];
  float& b = style == RopeStyle::kAdjacentPairs ? head[2 * i + 1] : head[half + i];
  const float c = cos_sin[i], s = cos_sin[half + i];
  const float ra = a * c - b * s;
  b = a * s + b * c;
  a = ra;
}

__global__ void rope_store_kernel(const __grid_constant__ RopeStoreParams p) {
  wait_for_previous();
  let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.num_valid.get()) {
    zero_row(p.q, t);
    zero_row(p.k, t);
    return;
  }
  const KvLayer& kv = p.layer;
  const int hd = kv.head_dim, half = hd / 2;
  const float* cos_sin = p.cos_sin.row<float>(t);
  float* q = p.q.row<float>(t);
  float* k = p.k.row<float>(t);
  for (int i = static_cast<int>(threadIdx.x); i < p.q.cols / 2; i += kThreads) {
    rotate(q + i / half * hd, cos_sin, i % half, hd, p.style);
  }
  for (int i = static_cast<int>(threadIdx.x); i < p.k.cols / 2; i += kThreads) {
    rotate(k + i / half * hd, cos_sin, i % half, hd, p.style);
  }
  const kv::SlotId slot = p.slots[t];
  if (slot == kv::kPadSlot) return;
  __syncthreads();
  std::byte* k_entry = kv.base + kv::entry_offset(kv.k, slot).value();
  std::byte* v_entry = kv.base + kv::entry_offset(kv.v, slot).value();
  for (int i = static_cast<int>(threadIdx.x); i < p.k.cols; i += kThreads) {
    store_kv(kv.dtype, k_entry, i, k[i]);
    store_kv(kv.dtype, v_entry, i, p.v.row<float>(t)[i]);
  }
}

__global__ void silu_mul_kernel(const __grid_constant__ SiluMulParams p) {
  wait_for_previous();
  let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.num_valid.get()) return zero_row(p.out, t);
  for (int i = static_cast<int>(threadIdx.x); i < p.out.cols; i += kThreads) {
    const float g = p.gate.row<float>(t)[i];
    p.out.row<float>(t)[i] = g / (1.0f + __expf(-g)) * p.up.row<float>(t)[i];
  }
}

__global__ void gather_rows_kernel(const __grid_constant__ GatherRowsParams p) {
  wait_for_previous();
  let_next_start();
  const int l = static_cast<int>(blockIdx.x);
  const int32_t source = p.index[l];
  if (source < 0) return zero_row(p.out, l);
  for (int i = static_cast<int>(threadIdx.x); i < p.out.cols; i += kThreads) {
    p.out.row<float>(l)[i] = p.x.row<float>(source)[i];
  }
}

// The way of every op here: a cta for each of `rows`.
template <class Params>
void run(device::Stream& stream, const char* op, void (*kernel)(Params), int rows, const Params& p) {
  check(p);
  launch(stream, op, kernel, {.grid = static_cast<unsigned>(rows), .cta = kThreads}, p);
}

}  // namespace

void embed(device::Stream& stream, const EmbedParams& p) {
  dispatch_weight(p.weight.dtype,
                  [&](auto w) { run(stream, "embed", embed_kernel<decltype(w)::value>, p.out.rows, p); });
}

void rms_norm(device::Stream& stream, const RmsNormParams& p) { run(stream, "rms_norm", rms_norm_kernel, p.x.rows, p); }

void rope_table(device::Stream& stream, const RopeTableParams& p) {
  run(stream, "rope_table", rope_table_kernel, p.cos_sin.rows, p);
}

void rope_store(device::Stream& stream, const RopeStoreParams& p) {
  run(stream, "rope_store", rope_store_kernel, p.q.rows, p);
}

void silu_mul(device::Stream& stream, const SiluMulParams& p) {
  run(stream, "silu_mul", silu_mul_kernel, p.gate.rows, p);
}

void gather_rows(device::Stream& stream, const GatherRowsParams& p) {
  run(stream, "gather_rows", gather_rows_kernel, p.out.rows, p);
}

}  // namespace bz::ops::cuda
