// From a weight type as a value to a kernel's instance.
#pragma once

#include <type_traits>

#include "base/dtype.h"

namespace bz::ops::cuda {

// Calls fn(std::integral_constant<DType, dtype>()). Nothing of any other type is launched: check() (checks.h) lets none
// pass.
template <class Fn>
void dispatch_weight(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32: return fn(std::integral_constant<DType, DType::kF32>());
    case DType::kF16: return fn(std::integral_constant<DType, DType::kF16>());
    case DType::kBF16: return fn(std::integral_constant<DType, DType::kBF16>());
    case DType::kQ4_0: return fn(std::integral_constant<DType, DType::kQ4_0>());
    case DType::kQ4_1: return fn(std::integral_constant<DType, DType::kQ4_1>());
    default: return fn(std::integral_constant<DType, DType::kQ8_0>());
  }
}

}  // namespace bz::ops::cuda
