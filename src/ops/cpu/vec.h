// A vector class V: sixteen lanes of floats (V::F) or of 32-bit integers (V::I), and the few operations the kernels
// need. Kernels are templates over V, so AVX2 (two registers) and AVX-512 (one) run the same arithmetic in the same
// order and give the same bits. V also carries the shapes of its register tiles, which never change a result.
//
// Sixteen lanes are added by one tree, everywhere: lane i + lane i+8, then i + i+4, then i + i+2, then 0 + 1.
//
// Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after <immintrin.h>.
#pragma once

namespace bz::ops::cpu {

// 2^x. Relative error below 2e-7 for x in [-125, 127]; 0 below; 2^127 above; NaN for NaN.
// x = n + f with |f| <= 1/2; 2^f = 1 + f * g(f), g the interpolation of degree 5 at Chebyshev nodes (error 1e-8).
template <class V>
BZ_VEC typename V::F exp2_of(typename V::F x) {
  const auto bounded = V::min(V::set1(127.0f), V::max(V::set1(-125.0f), x));
  const auto n = V::round(bounded);
  const auto f = V::sub(bounded, n);
  auto g = V::set1(0x1.44138ap-13f);
  g = V::fma(g, f, V::set1(0x1.5f0890p-10f));
  g = V::fma(g, f, V::set1(0x1.3b2a54p-7f));
  g = V::fma(g, f, V::set1(0x1.c6af6cp-5f));
  g = V::fma(g, f, V::set1(0x1.ebfbe0p-3f));
  g = V::fma(g, f, V::set1(0x1.62e430p-1f));
  const auto p = V::fma(g, f, V::set1(1.0f));
  return V::zero_where_less(V::scale_pow2(p, n), x, V::set1(-125.0f));
}

inline constexpr float kLog2e = 0x1.715476p+0f;

}  // namespace bz::ops::cpu
