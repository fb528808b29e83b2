// Small integer helpers, constexpr on host and device.
#pragma once

#include "base/strong_id.h"

namespace bz {

template <class T>
BZ_HD constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
BZ_HD constexpr T round_up(T a, T multiple) {
  return ceil_div(a, multiple) * multiple;
}
template <class T>
BZ_HD constexpr bool is_pow2(T a) {
  return a > 0 && (a & (a - 1)) == 0;
}
// Smallest power of two >= a; a >= 1.
template <class T>
BZ_HD constexpr T next_pow2(T a) {
  T p = 1;
  while (p < a) p *= 2;
  return p;
}

}  // namespace bz
