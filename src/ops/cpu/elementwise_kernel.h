// The fast forms of rms_norm, rope_store and silu_mul. (embed, rope_table and gather_rows move bytes or run once a
// step: the reference forms serve.) Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

// Sum of squares: 16 partial sums over element % 16 by fma, then the tree of vec.h.
template <class V>
void rms_norm_row(const float* x, const float* weight, float* out, int32_t d, float eps) {
  auto sum = V::zero();
  int32_t i = 0;
  for (; i + 16 <= d; i += 16) sum = V::fma(V::load(x + i), V::load(x + i), sum);
  if (i < d) sum = V::fma(V::load_n(x + i, d - i), V::load_n(x + i, d - i), sum);
  const auto inv = V::set1(1.0f / __builtin_sqrtf(V::sum(sum) / static_cast<float>(d) + eps));
  for (i = 0; i < d; i += 16) {
    const int n = std::min(16, d - i);
    V::store_n(out + i, V::mul(V::mul(V::load_n(x + i, n), inv), V::load_n(weight + i, n)), n);
  }
}

// exp(-g) = 2^(-g log2 e), by exp2_of.
template <class V>
void silu_mul_row(const float* gate, const float* up, float* out, int32_t n) {
  for (int32_t i = 0; i < n; i += 16) {
    const int lanes = std::min(16, n - i);
    const auto g = V::load_n(gate + i, lanes), u = V::load_n(up + i, lanes);
    const auto e = exp2_of<V>(V::mul(g, V::set1(-kLog2e)));
    V::store_n(out + i, V::mul(V::div(g, V::add(V::set1(1.0f), e)), u), lanes);
  }
}

template <class V>
void rotate_adjacent(float* head, const float* cos_sin, int32_t hd) {
  const float *c = cos_sin, *s = cos_sin + hd / 2;
  int32_t i = 0;
  for (; i + 16 <= hd; i += 16) V::store(head + i, V::rotate_pairs(V::load(head + i), c + i / 2, s + i / 2));
  for (; i < hd; i += 2) {
    const float x = head[i], y = head[i + 1];
    head[i] = __builtin_fmaf(x, c[i / 2], -(y * s[i / 2]));
    head[i + 1] = __builtin_fmaf(y, c[i / 2], x * s[i / 2]);
  }
}

template <class V>
void rotate_halves(float* head, const float* cos_sin, int32_t hd) {
  const int32_t half = hd / 2;
  for (int32_t i = 0; i < half; i += 16) {
    const int n = std::min(16, half - i);
    const auto x = V::load_n(head + i, n), y = V::load_n(head + half + i, n);
    const auto c = V::load_n(cos_sin + i, n), s = V::load_n(cos_sin + half + i, n);
    V::store_n(head + i, V::sub(V::mul(x, c), V::mul(y, s)), n);
    V::store_n(head + half + i, V::fma(y, c, V::mul(x, s)), n);
  }
}

template <class V>
void rotate_heads(float* x, const float* cos_sin, int32_t hd, int32_t heads, RopeStyle style) {
  for (int32_t h = 0; h < heads; ++h, x += hd) {
    style == RopeStyle::kAdjacentPairs ? rotate_adjacent<V>(x, cos_sin, hd) : rotate_halves<V>(x, cos_sin, hd);
  }
}

template <class V>
void store_entry(DType dtype, std::byte* dst, const float* src, int32_t n) {
  int32_t i = 0;
  if (dtype == DType::kF16) {
    for (; i + 16 <= n; i += 16) V::store_f16(dst + i * 2, V::load(src + i));
  }
  store_kv(dtype, dst + i * kv_element_bytes(dtype), src + i, n - i);
}

// The slot alone says whether a token is stored (PAD-2): padding holds kPadSlot, whatever num_valid is.
template <class V>
void rope_store_token(const RopeStoreParams& p, int64_t t, bool valid) {
  const KvLayer& kv = p.layer;
  const int32_t hd = kv.head_dim, width = kv.num_kv_heads * kv.head_dim;
  float* q = p.q.row<float>(t);
  float* k = p.k.row<float>(t);
  if (valid) {
    const float* cos_sin = p.cos_sin.row<float>(t);
    rotate_heads<V>(q, cos_sin, hd, p.q.cols / hd, p.style);
    rotate_heads<V>(k, cos_sin, hd, kv.num_kv_heads, p.style);
  } else {  // PAD-5
    __builtin_memset(q, 0, sizeof(float) * static_cast<size_t>(p.q.cols));
    __builtin_memset(k, 0, sizeof(float) * static_cast<size_t>(p.k.cols));
  }
  const kv::SlotId slot = p.slots[t];
  if (slot == kv::kPadSlot) return;
  store_entry<V>(kv.dtype, kv.base + kv::entry_offset(kv.k, slot).value(), k, width);
  store_entry<V>(kv.dtype, kv.base + kv::entry_offset(kv.v, slot).value(), p.v.row<float>(t), width);
}

}  // namespace bz::ops::cpu
