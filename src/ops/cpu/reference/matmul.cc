// Reference matmul: dequantise a row of the weight, then dot it in f32 with every token's row.
//
// Order of sums: 16 partial sums, element k adds to sum k % 16 in ascending k; then a fixed tree. It depends on K alone
// (PAD-9b). The partial sums are there so that the compiler can use vector registers.
#include <algorithm>
#include <cstring>

#include "ops/cpu/dequantize.h"
#include "ops/cpu/kernels.h"

namespace bz::ops::cpu::reference {
namespace {

constexpr int kSums = 16;
constexpr int kRows = 8;      // weight rows dequantised together, so that x is read once for all of them
constexpr int kChunk = 1024;  // elements of K dequantised at once; a multiple of kSums and of every block
constexpr int kTokens = 64;   // tokens whose partial sums are held at once

using V4 = float __attribute__((vector_size(16)));

inline V4 load4(const float* p) {
  V4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

struct Sums {
  V4 v[kSums / 4];
};

void dot_chunk(const float* w, const float* x, int32_t n, Sums& sums) {
  V4 a = sums.v[0], b = sums.v[1], c = sums.v[2], d = sums.v[3];
  int32_t k = 0;
  for (; k + kSums <= n; k += kSums) {
    a += load4(w + k) * load4(x + k);
    b += load4(w + k + 4) * load4(x + k + 4);
    c += load4(w + k + 8) * load4(x + k + 8);
    d += load4(w + k + 12) * load4(x + k + 12);
  }
  sums = {{a, b, c, d}};
  for (int32_t i = 0; k + i < n; ++i) sums.v[i / 4][i % 4] += w[k + i] * x[k + i];
}

float total(const Sums& s) {
  const V4 t = (s.v[0] + s.v[1]) + (s.v[2] + s.v[3]);
  return (t[0] + t[1]) + (t[2] + t[3]);
}

// Rows [n0, n0 + nr) of one weight times tokens [t0, t0 + nt).
void tile(const MatmulParams& p, const MatmulPart& part, int64_t n0, int nr, int64_t t0, int nt) {
  const Weight& w = part.weight;
  const int64_t bytes = row_bytes(w.dtype, w.k);
  float row[kRows][kChunk];
  Sums sums[kTokens][kRows] = {};
  for (int32_t k = 0; k < w.k; k += kChunk) {
    const int32_t len = std::min(kChunk, w.k - k);
    for (int r = 0; r < nr; ++r) dequantize(w.dtype, w.data + (n0 + r) * bytes, k, len, row[r]);
    for (int t = 0; t < nt; ++t) {
      for (int r = 0; r < nr; ++r) dot_chunk(row[r], p.x.row<float>(t0 + t) + k, len, sums[t][r]);
    }
  }
  for (int t = 0; t < nt; ++t) {
    float* out = part.out.row<float>(t0 + t) + n0;
    for (int r = 0; r < nr; ++r) out[r] = (p.accumulate ? out[r] : 0.0f) + total(sums[t][r]);
  }
}

void rows_of_weight(const MatmulParams& p, const MatmulPart& part, int64_t n0, int nr) {
  const int64_t num_valid = p.num_valid.get();
  for (int64_t t = 0; t < num_valid; t += kTokens) {
    tile(p, part, n0, nr, t, static_cast<int>(std::min<int64_t>(kTokens, num_valid - t)));
  }
  for (int64_t t = num_valid; t < part.out.rows; ++t) {  // PAD-5
    std::memset(part.out.row<float>(t) + n0, 0, sizeof(float) * static_cast<size_t>(nr));
  }
}

}  // namespace

void matmul(const MatmulParams& p, Worker& worker) {
  int64_t groups[MatmulParams::kMaxParts];
  int64_t total_groups = 0;
  for (int i = 0; i < p.num_parts; ++i) total_groups += groups[i] = (p.parts[i].weight.n + kRows - 1) / kRows;
  worker.parallel_for(total_groups, 4, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      int i = 0;
      int64_t local = g;
      while (local >= groups[i]) local -= groups[i++];
      const int64_t n0 = local * kRows;
      rows_of_weight(p, p.parts[i], n0, static_cast<int>(std::min<int64_t>(kRows, p.parts[i].weight.n - n0)));
    }
  });
}

size_t matmul_scratch_bytes(int32_t, int32_t) { return 0; }

}  // namespace bz::ops::cpu::reference
