// Avx2: sixteen lanes in two registers. See vec.h for what a vector class is. Include between BZ_ISA_AVX2_BEGIN/END.
#pragma once

namespace bz::ops::cpu {

struct Avx2 {
  struct F {
    __m256 lo, hi;
  };
  struct I {
    __m256i lo, hi;
  };

  // Shapes of register tiles (16 registers).
  static constexpr int kDirectRows = 4;
  static constexpr int kMaxDirect = 4;  // the most token rows for which that beats unpacking a panel
  static constexpr int kPanelRows = 4;
  static constexpr int kPanelGroups = 1;
  static constexpr int kFloatRows = 2;
  static constexpr int kFloatCols = 2;
  static constexpr int kValueQueries = 2;
  static constexpr int kValueChunks = 2;

  // ---- floats ----
  BZ_VEC F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  BZ_VEC F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  BZ_VEC F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  BZ_VEC F load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
  }
  BZ_VEC F load_f16(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
  }
  BZ_VEC F load_bf16(const void* p) {
    const auto* h = static_cast<const __m128i*>(p);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1)), 16))};
  }
  BZ_VEC void store(float* p, F a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  BZ_VEC void store_n(float* p, F a, int n) {
    _mm256_maskstore_ps(p, first(n), a.lo);
    _mm256_maskstore_ps(p + 8, first(n - 8), a.hi);
  }
  BZ_VEC float first_lane(F a) { return _mm256_cvtss_f32(a.lo); }
  BZ_VEC void store_f16(void* p, F a) {
    auto* h = static_cast<__m128i*>(p);
    _mm_storeu_si128(h, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(h + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
  }
  BZ_VEC F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  BZ_VEC F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  BZ_VEC F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  BZ_VEC F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  BZ_VEC F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
  // Pairs (x, y) of a turned by the angles of 8 cosines and sines: (x c - y s, y c + x s).
  BZ_VEC F rotate_pairs(F a, const float* c, const float* s) {
    return {rotate8(a.lo, c, s), rotate8(a.hi, c + 4, s + 4)};
  }
  BZ_VEC F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  BZ_VEC F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  BZ_VEC F round(F a) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
  }
  BZ_VEC F zero_where_less(F value, F a, F b) {
    return {_mm256_andnot_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), value.lo),
            _mm256_andnot_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ), value.hi)};
  }
  BZ_VEC uint32_t mask_nan(F a) {
    return mask(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q));
  }
  BZ_VEC uint32_t mask_equal(F a, F b) {
    return mask(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ));
  }
  BZ_VEC F select(uint32_t m, F a, F b) {
    return {_mm256_blendv_ps(b.lo, a.lo, lanes(m)), _mm256_blendv_ps(b.hi, a.hi, lanes(m >> 8))};
  }

  BZ_VEC float sum(F a) {
    const __m256 r8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 r4 = _mm_add_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
    const __m128 r2 = _mm_add_ps(r4, _mm_movehl_ps(r4, r4));
    return _mm_cvtss_f32(_mm_add_ss(r2, _mm_movehdup_ps(r2)));
  }
  BZ_VEC float max_lane(F a) {
    const __m256 m8 = _mm256_max_ps(a.lo, a.hi);
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
  }
  BZ_VEC F dot_each(const float* q, const float* keys, int stride, int chunks) {
    __m256 r[16];
    BZ_UNROLL
    for (int i = 0; i < 16; i += 4) dot4(q, keys + i * stride, stride, chunks, r + i);
    return {sum_each8(r), sum_each8(r + 8)};
  }

  // ---- integers ----
  BZ_VEC I zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  BZ_VEC I set1_i16(int16_t x) { return {_mm256_set1_epi16(x), _mm256_set1_epi16(x)}; }
  BZ_VEC I load_i(const void* p) {
    const auto* q = static_cast<const __m256i*>(p);
    return {_mm256_load_si256(q), _mm256_load_si256(q + 1)};
  }
  BZ_VEC void store_i(void* p, I a) {
    auto* q = static_cast<__m256i*>(p);
    _mm256_store_si256(q, a.lo);
    _mm256_store_si256(q + 1, a.hi);
  }
  BZ_VEC I add_i32(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
  BZ_VEC I sub_i16(I a, I b) { return {_mm256_sub_epi16(a.lo, b.lo), _mm256_sub_epi16(a.hi, b.hi)}; }
  BZ_VEC I and_i(I a, I b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
  BZ_VEC I max_i32(I a, I b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
  template <int N>
  BZ_VEC I shl_i16(I a) {
    return {_mm256_slli_epi16(a.lo, N), _mm256_slli_epi16(a.hi, N)};
  }
  template <int N>
  BZ_VEC I shr_u16(I a) {
    return {_mm256_srli_epi16(a.lo, N), _mm256_srli_epi16(a.hi, N)};
  }
  template <int N>
  BZ_VEC I shr_i16(I a) {
    return {_mm256_srai_epi16(a.lo, N), _mm256_srai_epi16(a.hi, N)};
  }
  BZ_VEC F scale_pow2(F p, F n) { return {scale8(p.lo, n.lo), scale8(p.hi, n.hi)}; }
  BZ_VEC I abs_bits(F a) {
    const __m256i m = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(a.lo), m), _mm256_and_si256(_mm256_castps_si256(a.hi), m)};
  }
  BZ_VEC int32_t max_lane_i32(I a) {
    const __m256i m8 = _mm256_max_epi32(a.lo, a.hi);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1)));
  }
  BZ_VEC int32_t sum_i32(I a) {
    const __m256i s8 = _mm256_add_epi32(a.lo, a.hi);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(s8), _mm256_extracti128_si256(s8, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
  }
  BZ_VEC F to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
  BZ_VEC I to_int(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
  BZ_VEC I dot_pair(I acc, I a, const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    const __m256i b = _mm256_set1_epi32(pair);
    acc = {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, b)), _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, b))};
    // Else the compiler reassociates the integer sums of a whole tile into trees and spills every product.
    asm("" : "+x"(acc.lo), "+x"(acc.hi));
    return acc;
  }
  BZ_VEC F f16_low(I a) {
    const __m256i m = _mm256_set1_epi32(0xffff);
    return half_lanes(_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m));
  }
  BZ_VEC F f16_high(I a) { return half_lanes(_mm256_srli_epi32(a.lo, 16), _mm256_srli_epi32(a.hi, 16)); }
  BZ_VEC void load_rows(const std::byte* p, int64_t stride, I (&t)[4]) {
    __m256i lo[4], hi[4];
    load_rows8(p, stride, lo);
    load_rows8(p + 8 * stride, stride, hi);
    BZ_UNROLL
    for (int j = 0; j < 4; ++j) t[j] = {lo[j], hi[j]};
  }
  BZ_VEC void store_split_i16(int16_t* evens, int16_t* odds, I a) {
    const __m256i split =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i natural = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
    const __m256i s = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(natural, split), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(evens), _mm256_castsi256_si128(s));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(odds), _mm256_extracti128_si256(s, 1));
  }

 private:
  // 16 halves, each alone in 32 bits.
  BZ_VEC F half_lanes(__m256i lo, __m256i hi) {
    const __m256i h = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
  }
  BZ_VEC __m256 rotate8(__m256 a, const float* c, const float* s) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256 cc = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(c)), twice);
    const __m256 ss = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(s)), twice);
    return _mm256_fmaddsub_ps(a, cc, _mm256_mul_ps(_mm256_permute_ps(a, 0xB1), ss));
  }
  // Lanes below n set, for n in any range.
  BZ_VEC __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  BZ_VEC __m256 lanes(uint32_t m) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i hit = _mm256_and_si256(_mm256_set1_epi32(static_cast<int32_t>(m)), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(hit, bit));
  }
  BZ_VEC uint32_t mask(__m256 lo, __m256 hi) {
    return static_cast<uint32_t>(_mm256_movemask_ps(lo)) | static_cast<uint32_t>(_mm256_movemask_ps(hi)) << 8;
  }
  BZ_VEC __m256 scale8(__m256 p, __m256 n) {
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
  }
  // r[i]: the first step of the tree, lanes 0..7 plus lanes 8..15, for four keys.
  BZ_VEC void dot4(const float* q, const float* keys, int stride, int chunks, __m256* r) {
    __m256 lo[4], hi[4];
    const __m256 q0 = _mm256_loadu_ps(q), q1 = _mm256_loadu_ps(q + 8);
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) {
      lo[i] = _mm256_mul_ps(q0, _mm256_loadu_ps(keys + i * stride));
      hi[i] = _mm256_mul_ps(q1, _mm256_loadu_ps(keys + i * stride + 8));
    }
    for (int c = 1; c < chunks; ++c) {
      const __m256 a = _mm256_loadu_ps(q + 16 * c), b = _mm256_loadu_ps(q + 16 * c + 8);
      BZ_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* k = keys + i * stride + 16 * c;
        lo[i] = _mm256_fmadd_ps(a, _mm256_loadu_ps(k), lo[i]);
        hi[i] = _mm256_fmadd_ps(b, _mm256_loadu_ps(k + 8), hi[i]);
      }
    }
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) r[i] = _mm256_add_ps(lo[i], hi[i]);
  }
  BZ_VEC __m256 sum_each8(const __m256* t) {
    constexpr int natural[8] = {0, 2, 1, 3, 4, 6, 5, 7};  // slot s of the reduction ends in lane natural(s)
    __m256 w[4], x[2];
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) {
      const __m256 a = t[natural[i]], b = t[natural[i + 4]];
      w[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    BZ_UNROLL
    for (int i = 0; i < 2; ++i) {
      const __m256d a = _mm256_castps_pd(w[i]), b = _mm256_castps_pd(w[i + 2]);
      x[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(x[0], x[1], 0x88), _mm256_shuffle_ps(x[0], x[1], 0xDD));
  }
  BZ_VEC __m256i rows(const std::byte* a, const std::byte* b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
  }
  BZ_VEC void load_rows8(const std::byte* p, int64_t stride, __m256i (&t)[4]) {
    __m256i z[4];
    BZ_UNROLL
    for (int i = 0; i < 4; ++i) z[i] = rows(p + i * stride, p + (i + 4) * stride);
    const __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpacklo_epi32(z[2], z[3]);
    const __m256i c = _mm256_unpackhi_epi32(z[0], z[1]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    t[0] = _mm256_unpacklo_epi64(a, b);
    t[1] = _mm256_unpackhi_epi64(a, b);
    t[2] = _mm256_unpacklo_epi64(c, d);
    t[3] = _mm256_unpackhi_epi64(c, d);
  }
};

}  // namespace bz::ops::cpu
