// What both samplers share: the best token of a row, its log-probability, and the end of a row (PAD-4).
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/sample_finish.h"

namespace bz::ops::cuda {

inline constexpr int kSampleThreads = 1024;

// Of some logits: the largest and where (ties: lowest id), sum of exp(logit - max), whether a NaN is among them.
struct LogitStats {
  float max;
  int32_t arg;
  float sum;
  int32_t nan;
};

__device__ inline LogitStats merge(const LogitStats& a, const LogitStats& b) {
  LogitStats r;
  const bool take_b = b.max > a.max || (b.max == a.max && b.arg < a.arg);
  r.max = take_b ? b.max : a.max;
  r.arg = take_b ? b.arg : a.arg;
  r.nan = a.nan | b.nan;
  const float from_a = a.max == -INFINITY ? 0.0f : a.sum * __expf(a.max - r.max);
  const float from_b = b.max == -INFINITY ? 0.0f : b.sum * __expf(b.max - r.max);
  r.sum = from_a + from_b;
  return r;
}

__device__ inline void add_logit(LogitStats& s, float logit, int32_t id) {
  if (logit != logit) {
    s.nan = 1;
  } else if (logit > s.max) {
    s.sum = (s.max == -INFINITY ? 0.0f : s.sum * __expf(s.max - logit)) + 1.0f;
    s.max = logit;
    s.arg = id;
  } else if (logit != -INFINITY) {
    s.sum += __expf(logit - s.max);
  }
}

__device__ inline LogitStats shuffle_xor(const LogitStats& s, int offset) {
  return {__shfl_xor_sync(0xffffffffu, s.max, offset), __shfl_xor_sync(0xffffffffu, s.arg, offset),
          __shfl_xor_sync(0xffffffffu, s.sum, offset), __shfl_xor_sync(0xffffffffu, s.nan, offset)};
}

// Of part `part` of `parts` of a row; the same in every thread of the cta. Independent loads of four logits each.
__device__ inline LogitStats row_stats(const float* logits, int32_t n, int part = 0, int parts = 1) {
  __shared__ LogitStats shared[32];
  LogitStats s{-INFINITY, INT32_MAX, 0.0f, 0};
  const int tid = static_cast<int>(threadIdx.x), me = part * kSampleThreads + tid, all = parts * kSampleThreads;
  const int quads = reinterpret_cast<uintptr_t>(logits) % 16 == 0 ? n / 4 : 0;
#pragma unroll 2
  for (int i = me; i < quads; i += all) {
    const float4 v = reinterpret_cast<const float4*>(logits)[i];
    add_logit(s, v.x, 4 * i);
    add_logit(s, v.y, 4 * i + 1);
    add_logit(s, v.z, 4 * i + 2);
    add_logit(s, v.w, 4 * i + 3);
  }
  for (int i = 4 * quads + me; i < n; i += all) add_logit(s, logits[i], i);
  for (int offset = 16; offset > 0; offset /= 2) s = merge(s, shuffle_xor(s, offset));
  __syncthreads();
  if (tid % 32 == 0) shared[tid / 32] = s;
  __syncthreads();
  s = shared[tid % 32];
  for (int offset = 16; offset > 0; offset /= 2) s = merge(s, shuffle_xor(s, offset));
  return s;
}

// The end of a row: by one thread of it.
__device__ inline void end_row(const SampleParams& p, int row, const RowResult* samples, int n) {
  finish_row(p, row, samples, n);
  if (row == 0) finish_header(p);
}

}  // namespace bz::ops::cuda
