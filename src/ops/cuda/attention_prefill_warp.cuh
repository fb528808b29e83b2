// Attention of many tokens at once: a warp's 16 query rows over the pieces of its team, with a running softmax
// (FlashAttention, Dao 2023), on the tensor cores.
//
//   scores [16 x positions] = q [16 x hd] K^T          out [16 x hd] += weights [16 x positions] V
//
// Queries and weights are split into two terms of 16 bits, as in attention_mma.cuh: only the cache is rounded.
#pragma once

#include "ops/cuda/attention_merge.cuh"
#include "ops/cuda/attention_pieces.cuh"

namespace bz::ops::cuda {

// One warp's 16 query rows: lane 4 g + t has rows g and g + 8 (k = 0, 1 below).
template <DType T, int HD>
struct PrefillWarp {
  static constexpr int kSteps = HD / 16;
  static constexpr int kRowBytes = HD * 2;
  static constexpr int kColumns = kPiece / 8;

  uint32_t query[2][kSteps][4];  // [high, low]: the A fragments
  float scores[kColumns][4];     // positions 8 c + 2 t + {0, 1} of row g, then of g + 8; then weights
  float out[HD / 8][4] = {};     // dimensions 8 d + 2 t + {0, 1} of row g, then of g + 8
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // the sum over this lane's positions alone
  int begin[2], end[2];                                // what the rows see

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int g() { return lane() / 4; }
  __device__ static int t() { return lane() % 4; }

  // q[k]: [HD], or nullptr for no row.
  __device__ void load_queries(const float* const (&q)[2], float scale) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 f{};
        if (q[i % 2] != nullptr) f = *reinterpret_cast<const float2*>(q[i % 2] + 16 * s + i / 2 * 8 + 2 * t());
        split2<T>(f.x * scale, f.y * scale, query[0][s][i], query[1][s][i]);
      }
    }
  }

  __device__ void attend(uint32_t keys, uint32_t values, int first_position, uint64_t counts) {
    score(keys);
    mask(first_position, counts);
    weigh();
    add_values(values);
  }

  __device__ void score(uint32_t keys) {
    const int row = lane() / 16 * 8 + lane() % 8, unit = lane() / 8 % 2;
    const uint32_t from = keys + row * kRowBytes + (unit ^ row % 8) * 16;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) scores[c][0] = scores[c][1] = scores[c][2] = scores[c][3] = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t k[kColumns / 2][4];
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) ldmatrix(k[c / 2], (from + c * 8 * kRowBytes) ^ (s * 32));
#pragma unroll
      for (int term = 0; term < 2; ++term) {  // eight products before one needs what another gave
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          mma_16816<T>(scores[c], query[term][s], k[c / 2][c % 2 * 2], k[c / 2][c % 2 * 2 + 1]);
        }
      }
    }
  }

  // What a row does not see scores -inf.
  __device__ void mask(int first, uint64_t counts) {
    const int from = ::max(begin[0], begin[1]), to = ::min(end[0], end[1]);
    if (counts == ~uint64_t{0} && first >= from && first + kPiece <= to) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * c + 2 * t() + i % 2, k = i / 2;
        const bool sees = (counts >> at & 1) != 0 && first + at >= begin[k] && first + at < end[k];
        if (!sees) scores[c][i] = -INFINITY;
      }
    }
  }

  __device__ void weigh() {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float m = max[k];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) m = fmaxf(m, fmaxf(scores[c][2 * k], scores[c][2 * k + 1]));
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
      const float keep = rescale(max[k], m);
      max[k] = m;
      const float from = m == -INFINITY ? 0.0f : m;  // nothing yet: no -inf - -inf
      sum[k] *= keep;
#pragma unroll
      for (int d = 0; d < HD / 8; ++d) out[d][2 * k] *= keep, out[d][2 * k + 1] *= keep;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 2 * k; i < 2 * k + 2; ++i) {
          scores[c][i] = fast_exp2(scores[c][i] - from);
          sum[k] += scores[c][i];
        }
      }
    }
  }

  // Weights of a row's own later positions are 0 and their values count: those are this step's, as the row's own are.
  __device__ void add_values(uint32_t values) {
    const int row = lane() % 16, unit = lane() / 16;
    const uint32_t from = values + row * kRowBytes + (unit ^ row % 8) * 16;
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      uint32_t weights[2][4];  // [high, low]
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* w = &scores[c + i / 2][i % 2 * 2];
        split2<T>(w[0], w[1], weights[0][i], weights[1][i]);
      }
#pragma unroll
      for (int d0 = 0; d0 < HD / 8; d0 += 8) {
        uint32_t v[4][4];
#pragma unroll
        for (int d = 0; d < 8; d += 2) {
          ldmatrix_transposed(v[d / 2], (from + c * 8 * kRowBytes) ^ ((d0 + d) * 16));
        }
#pragma unroll
        for (int term = 0; term < 2; ++term) {
#pragma unroll
          for (int d = 0; d < 8; ++d) {
            mma_16816<T>(out[d0 + d], weights[term], v[d / 2][d % 2 * 2], v[d / 2][d % 2 * 2 + 1]);
          }
        }
      }
    }
  }

  // What this warp saw, [kShared][kWarp] floats, for the warp of the same rows in the other team, which takes it in.
  static constexpr int kShared = HD / 2 + 4;
  __device__ void leave(float* memory) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) memory[k * kWarp + lane()] = max[k], memory[(2 + k) * kWarp + lane()] = sum[k];
#pragma unroll
    for (int i = 0; i < HD / 2; ++i) memory[(4 + i) * kWarp + lane()] = out[i / 4][i % 4];
  }
  __device__ void take(const float* memory) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float other = memory[k * kWarp + lane()], m = fmaxf(max[k], other);
      const float mine = rescale(max[k], m), theirs = rescale(other, m);
      sum[k] = fmaf(memory[(2 + k) * kWarp + lane()], theirs, sum[k] * mine);
#pragma unroll
      for (int i = 2 * k; i < HD / 2; i += i % 2 == 0 ? 1 : 3) {
        float& o = out[i / 4][i % 4];
        o = fmaf(memory[(4 + i) * kWarp + lane()], theirs, o * mine);
      }
    }
  }

  // to[k]: [HD], or nullptr for no row.
  __device__ void store(float* const (&to)[2]) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], offset);
      if (to[k] == nullptr) continue;
      const float share = quotient(1.0f, sum[k]);
#pragma unroll
      for (int d = 0; d < HD / 8; ++d) {
        *reinterpret_cast<float2*>(to[k] + 8 * d + 2 * t()) = {out[d][2 * k] * share, out[d][2 * k + 1] * share};
      }
    }
  }
};

}  // namespace bz::ops::cuda
