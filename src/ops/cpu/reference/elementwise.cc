// Reference forms of the ops that treat every row alone: embed, rms_norm, rope, silu_mul, gather_rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cpu/dequantize.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/kv_element.h"
#include "ops/cpu/rows.h"

namespace bz::ops::cpu::reference {

void embed(const EmbedParams& p, Worker& worker) {
  const int64_t bytes = row_bytes(p.weight.dtype, p.weight.k);
  for_each_row(worker, p.out, p.num_valid.get(), [&](int64_t t) {
    const int32_t id = p.token_ids[t];
    BZ_CHECK_MSG(id >= 0 && id < p.weight.n, "token id {} outside the vocabulary of {}", id, p.weight.n);
    dequantize(p.weight.dtype, p.weight.data + id * bytes, 0, p.weight.k, p.out.row<float>(t));
  });
}

void rms_norm(const RmsNormParams& p, Worker& worker) {
  const int32_t d = p.x.cols;
  for_each_row(worker, p.out, p.num_valid.get(), [&](int64_t t) {
    const float* x = p.x.row<float>(t);
    float* out = p.out.row<float>(t);
    double sum = 0;
    for (int32_t i = 0; i < d; ++i) sum += static_cast<double>(x[i]) * x[i];
    const float inv = static_cast<float>(1.0 / std::sqrt(sum / d + p.eps));
    for (int32_t i = 0; i < d; ++i) out[i] = x[i] * inv * p.weight[i];
  });
}

void rope_table(const RopeTableParams& p, Worker& worker) {
  const int32_t half = p.cos_sin.cols / 2;
  for_each_row(worker, p.cos_sin, p.num_valid.get(), [&](int64_t t) {
    float* out = p.cos_sin.row<float>(t);
    for (int32_t i = 0; i < half; ++i) {
      const double angle = p.positions[t] * p.inv_freq[i];
      out[i] = static_cast<float>(std::cos(angle));
      out[half + i] = static_cast<float>(std::sin(angle));
    }
  });
}

namespace {

void rotate(float* head, const float* cos_sin, int32_t hd, RopeStyle style) {
  const int32_t half = hd / 2;
  for (int32_t i = 0; i < half; ++i) {
    float& a = style == RopeStyle::kAdjacentPairs ? head[2 * i] : head[i];
    float& b = style == RopeStyle::kAdjacentPairs ? head[2 * i + 1] : head[half + i];
    const float c = cos_sin[i], s = cos_sin[half + i];
    const float ra = a * c - b * s;
    b = a * s + b * c;
    a = ra;
  }
}

}  // namespace

// The slot alone says whether a token is stored (PAD-2): padding holds kPadSlot, whatever num_valid is.
void rope_store(const RopeStoreParams& p, Worker& worker) {
  const KvLayer& kv = p.layer;
  const int32_t hd = kv.head_dim;
  const int32_t num_valid = p.num_valid.get();
  worker.parallel_for(p.q.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* q = p.q.row<float>(t);
      float* k = p.k.row<float>(t);
      if (t < num_valid) {
        for (int32_t h = 0; h < p.q.cols / hd; ++h) rotate(q + h * hd, p.cos_sin.row<float>(t), hd, p.style);
        for (int32_t h = 0; h < kv.num_kv_heads; ++h) rotate(k + h * hd, p.cos_sin.row<float>(t), hd, p.style);
      } else {  // PAD-5
        std::memset(q, 0, sizeof(float) * static_cast<size_t>(p.q.cols));
        std::memset(k, 0, sizeof(float) * static_cast<size_t>(p.k.cols));
      }
      const kv::SlotId slot = p.slots[t];
      if (slot == kv::kPadSlot) continue;
      store_kv(kv.dtype, kv.base + kv::entry_offset(kv.k, slot).value(), k, kv.num_kv_heads * hd);
      store_kv(kv.dtype, kv.base + kv::entry_offset(kv.v, slot).value(), p.v.row<float>(t), kv.num_kv_heads * hd);
    }
  });
}

void silu_mul(const SiluMulParams& p, Worker& worker) {
  for_each_row(worker, p.out, p.num_valid.get(), [&](int64_t t) {
    const float* gate = p.gate.row<float>(t);
    const float* up = p.up.row<float>(t);
    float* out = p.out.row<float>(t);
    for (int32_t i = 0; i < p.out.cols; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  });
}

void gather_rows(const GatherRowsParams& p, Worker& worker) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(p.out.cols);
  worker.parallel_for(p.out.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      if (p.index[l] < 0) {
        std::memset(p.out.row<float>(l), 0, bytes);
      } else {
        std::memcpy(p.out.row<float>(l), p.x.row<float>(p.index[l]), bytes);
      }
    }
  });
}

void zero_rows(const ZeroRowsParams& p, Worker& worker) {
  worker.parallel_for(p.out.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = p.token_row != nullptr ? p.token_row[n] : n;
      if (row >= 0 && p.seq_len[row] > 0) continue;
      std::memset(static_cast<std::byte*>(p.out.data) + row_bytes(p.out.dtype, n * p.out.row_stride), 0,
                  static_cast<size_t>(row_bytes(p.out.dtype, p.out.cols)));
    }
  });
}

}  // namespace bz::ops::cpu::reference
