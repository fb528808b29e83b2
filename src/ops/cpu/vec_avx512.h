// Avx512: sixteen lanes in one register. See vec.h for what a vector class is. Include between BZ_ISA_AVX512_BEGIN/END.
#pragma once

namespace bz::ops::cpu {

struct Avx512 {
  struct F {
    __m512 v;
  };
  struct I {
    __m512i v;
  };

  // Shapes of register tiles (32 registers).
  static constexpr int kDirectRows = 8;    // matmul straight from GGUF blocks: token rows
  static constexpr int kMaxDirect = 8;     // the most token rows for which that beats unpacking a panel
  static constexpr int kPanelRows = 6;     // matmul over an unpacked panel: token rows ...
  static constexpr int kPanelGroups = 2;   // ... times groups of 16 columns
  static constexpr int kFloatRows = 4;     // matmul of plain types: token rows ...
  static constexpr int kFloatCols = 4;     // ... times columns
  static constexpr int kValueQueries = 4;  // attention, p * V: queries ...
  static constexpr int kValueChunks = 4;   // ... times 16 elements of the head

  // ---- floats ----
  BZ_VEC F zero() { return {_mm512_setzero_ps()}; }
  BZ_VEC F set1(float x) { return {_mm512_set1_ps(x)}; }
  BZ_VEC F load(const float* p) { return {_mm512_loadu_ps(p)}; }
  BZ_VEC F load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  BZ_VEC F load_f16(const void* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))}; }
  BZ_VEC F load_bf16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  BZ_VEC void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
  BZ_VEC void store_n(float* p, F a, int n) { _mm512_mask_storeu_ps(p, first(n), a.v); }
  BZ_VEC float first_lane(F a) { return _mm512_cvtss_f32(a.v); }
  BZ_VEC void store_f16(void* p, F a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  BZ_VEC F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
  BZ_VEC F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
  BZ_VEC F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
  BZ_VEC F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
  BZ_VEC F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // Pairs (x, y) of a turned by the angles of 8 cosines and sines: (x c - y s, y c + x s).
  BZ_VEC F rotate_pairs(F a, const float* c, const float* s) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512 cc = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(c)));
    const __m512 ss = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(s)));
    return {_mm512_fmaddsub_ps(a.v, cc, _mm512_mul_ps(_mm512_permute_ps(a.v, 0xB1), ss))};
  }
  // The second if either is NaN.
  BZ_VEC F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
  BZ_VEC F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
  BZ_VEC F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  BZ_VEC F zero_where_less(F value, F a, F b) {
    return {_mm512_mask_mov_ps(value.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), _mm512_setzero_ps())};
  }
  BZ_VEC uint32_t mask_nan(F a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
  BZ_VEC uint32_t mask_equal(F a, F b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
  // Lane i of a where bit i of mask is set, of b elsewhere.
  BZ_VEC F select(uint32_t mask, F a, F b) { return {_mm512_mask_mov_ps(b.v, static_cast<__mmask16>(mask), a.v)}; }

  // The tree of vec.h.
  BZ_VEC float sum(F a) { return sum8(_mm256_add_ps(low(a.v), high(a.v))); }
  BZ_VEC float max_lane(F a) {
    const __m256 m8 = _mm256_max_ps(low(a.v), high(a.v));
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
  }
  // Lane i: sum(v[i]).
  BZ_VEC F sum_each(const F (&v)[16]) {
    // Slot s of the reduction ends in lane natural(s).
    constexpr int natural[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
    __m512 u[8], w[4], x[2];
    BZ_UNROLL
    for (int i = 0; i < 8; ++i) {
      const __m512 a = v[natural[i]].v, b = v[natural[i + 8]].v;
      u[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    }
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm512_add_ps(_mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), _mm512_shuffle_f32x4(u[i], u[i + 4], 0xDD));
    }
    BZ_UNROLL
    for (int i = 0; i < 2; ++i) {
      const __m512d a = _mm512_castps_pd(w[i]), b = _mm512_castps_pd(w[i + 2]);
      x[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    return {_mm512_add_ps(_mm512_shuffle_ps(x[0], x[1], 0x88), _mm512_shuffle_ps(x[0], x[1], 0xDD))};
  }
  // Lane i: the dot of q and key i, over 16 * chunks elements; keys lie `stride` floats apart.
  BZ_VEC F dot_each(const float* q, const float* keys, int stride, int chunks) {
    F acc[16];
    const __m512 q0 = _mm512_loadu_ps(q);
    BZ_UNROLL
    for (int i = 0; i < 16; ++i) acc[i].v = _mm512_mul_ps(q0, _mm512_loadu_ps(keys + i * stride));
    for (int c = 1; c < chunks; ++c) {
      const __m512 qc = _mm512_loadu_ps(q + 16 * c);
      BZ_UNROLL
      for (int i = 0; i < 16; ++i) {
        acc[i].v = _mm512_fmadd_ps(qc, _mm512_loadu_ps(keys + i * stride + 16 * c), acc[i].v);
      }
    }
    return sum_each(acc);
  }

  // ---- integers ----
  BZ_VEC I zero_i() { return {_mm512_setzero_si512()}; }
  BZ_VEC I set1_i16(int16_t x) { return {_mm512_set1_epi16(x)}; }
  BZ_VEC I load_i(const void* p) { return {_mm512_load_si512(p)}; }
  BZ_VEC void store_i(void* p, I a) { _mm512_store_si512(p, a.v); }
  BZ_VEC I add_i32(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
  BZ_VEC I sub_i16(I a, I b) { return {_mm512_sub_epi16(a.v, b.v)}; }
  BZ_VEC I and_i(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
  BZ_VEC I max_i32(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
  template <int N>
  BZ_VEC I shl_i16(I a) {
    return {_mm512_slli_epi16(a.v, N)};
  }
  template <int N>
  BZ_VEC I shr_u16(I a) {
    return {_mm512_srli_epi16(a.v, N)};
  }
  template <int N>
  BZ_VEC I shr_i16(I a) {
    return {_mm512_srai_epi16(a.v, N)};
  }
  // n in [-126, 127], as a float: 2^n multiplied onto p by its exponent field.
  BZ_VEC F scale_pow2(F p, F n) {
    const __m512i shift = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), shift))};
  }
  BZ_VEC I abs_bits(F a) { return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff))}; }
  BZ_VEC int32_t max_lane_i32(I a) { return _mm512_reduce_max_epi32(a.v); }
  BZ_VEC int32_t sum_i32(I a) { return _mm512_reduce_add_epi32(a.v); }
  BZ_VEC F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
  BZ_VEC I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
  // acc + a.lo * b.lo + a.hi * b.hi per 32-bit lane; b is the pair of int16 at p, in every lane.
  BZ_VEC I dot_pair(I acc, I a, const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm512_dpwssd_epi32(acc.v, a.v, _mm512_set1_epi32(pair))};
  }
  // The f16 in the low (high) half of each 32-bit lane.
  BZ_VEC F f16_low(I a) {
    return halves(a, _mm512_setr_epi32(0x20000, 0x60004, 0xa0008, 0xe000c, 0x120010, 0x160014, 0x1a0018, 0x1e001c, 0, 0,
                                       0, 0, 0, 0, 0, 0));
  }
  BZ_VEC F f16_high(I a) {
    return halves(a, _mm512_setr_epi32(0x30001, 0x70005, 0xb0009, 0xf000d, 0x130011, 0x170015, 0x1b0019, 0x1f001d, 0, 0,
                                       0, 0, 0, 0, 0, 0));
  }
  // t[j], lane r = the j-th 4 bytes of the 16 at p + r * stride.
  BZ_VEC void load_rows(const std::byte* p, int64_t stride, I (&t)[4]) {
    __m512i z[4];
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::byte* q = p + i * stride;
      z[i] = _mm512_castsi128_si512(row(q));
      z[i] = _mm512_inserti32x4(z[i], row(q + 4 * stride), 1);
      z[i] = _mm512_inserti32x4(z[i], row(q + 8 * stride), 2);
      z[i] = _mm512_inserti32x4(z[i], row(q + 12 * stride), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpacklo_epi32(z[2], z[3]);
    const __m512i c = _mm512_unpackhi_epi32(z[0], z[1]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    t[0].v = _mm512_unpacklo_epi64(a, b);
    t[1].v = _mm512_unpackhi_epi64(a, b);
    t[2].v = _mm512_unpacklo_epi64(c, d);
    t[3].v = _mm512_unpackhi_epi64(c, d);
  }
  // The even lanes of a, as int16, to evens[0..8); the odd ones to odds[0..8). Saturates.
  BZ_VEC void store_split_i16(int16_t* evens, int16_t* odds, I a) {
    const __m256i split =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i s = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(_mm512_cvtsepi32_epi16(a.v), split), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(evens), _mm256_castsi256_si128(s));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(odds), _mm256_extracti128_si256(s, 1));
  }

 private:
  BZ_VEC F halves(I a, __m512i words) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(words, a.v)))};
  }
  BZ_VEC __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  BZ_VEC __m128i row(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  BZ_VEC __m256 low(__m512 a) { return _mm512_castps512_ps256(a); }
  BZ_VEC __m256 high(__m512 a) { return _mm512_extractf32x8_ps(a, 1); }
  BZ_VEC float sum8(__m256 r8) {
    const __m128 r4 = _mm_add_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
    const __m128 r2 = _mm_add_ps(r4, _mm_movehl_ps(r4, r4));
    return _mm_cvtss_f32(_mm_add_ss(r2, _mm_movehdup_ps(r2)));
  }
};

}  // namespace bz::ops::cpu
