// Matrix product with weights of a plain type (f32, f16, bf16): R token rows times C weight rows in registers, 16
// partial sums each, in the order of matmul_order.h. Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

template <class V, DType T>
BZ_VEC typename V::F load_weights(const std::byte* p) {
  if constexpr (T == DType::kF32) return V::load(reinterpret_cast<const float*>(p));
  if constexpr (T == DType::kF16) return V::load_f16(p);
  if constexpr (T == DType::kBF16) return V::load_bf16(p);
}

// The last K % 16 elements, zeros after them: fma(0, 0, acc) changes nothing but the sign of a zero, in every tile
// alike.
template <DType T>
struct Tail {
  static constexpr int kBytes = dtype_info(T).block_bytes;
  std::byte bytes[16 * kBytes];
  Tail(const std::byte* p, int n) {
    __builtin_memset(bytes, 0, sizeof(bytes));
    __builtin_memcpy(bytes, p, size_t{kBytes} * static_cast<size_t>(n));
  }
};

template <class V, DType T, int R, int C>
[[gnu::noinline]] void float_tile(const std::byte* weights, int64_t weight_stride, int32_t k, const float* x,
                                  int64_t x_stride, float* out, int64_t out_stride, bool accumulate) {
  constexpr int kBytes = dtype_info(T).block_bytes;
  typename V::F acc[R][C];
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    BZ_UNROLL
    for (int c = 0; c < C; ++c) acc[r][c] = V::zero();
  }
  int32_t i = 0;
  for (; i + 16 <= k; i += 16) {
    typename V::F w[C];
    BZ_UNROLL
    for (int c = 0; c < C; ++c) w[c] = load_weights<V, T>(weights + c * weight_stride + i * kBytes);
    BZ_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto xr = V::load(x + r * x_stride + i);
      BZ_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = V::fma(w[c], xr, acc[r][c]);
    }
  }
  if (i < k) {
    BZ_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto xr = V::load_n(x + r * x_stride + i, k - i);
      BZ_UNROLL
      for (int c = 0; c < C; ++c) {
        const Tail<T> tail(weights + c * weight_stride + i * kBytes, k - i);
        acc[r][c] = V::fma(load_weights<V, T>(tail.bytes), xr, acc[r][c]);
      }
    }
  }
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    BZ_UNROLL
    for (int c = 0; c < C; ++c) {
      float& o = out[r * out_stride + c];
      const float total = V::sum(acc[r][c]);
      o = accumulate ? o + total : total;
    }
  }
}

}  // namespace bz::ops::cpu
