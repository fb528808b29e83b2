// x [K] f32 -> ActBlock [K / 32] (matmul_order.h). Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

template <class V>
void quantize_row(const float* x, int32_t num_blocks, ActBlock* out) {
  for (int32_t b = 0; b < num_blocks; ++b, x += kBlock, ++out) {
    const auto x0 = V::load(x), x1 = V::load(x + 16);
    // As integers, |x| of any NaN is above that of infinity, so amax shows it.
    const int32_t amax_bits = V::max_lane_i32(V::max_i32(V::abs_bits(x0), V::abs_bits(x1)));
    const float amax = __builtin_bit_cast(float, amax_bits);
    const bool tiny = amax < kTinyBlock;
    const auto inverse = V::set1(tiny ? 0.0f : kQuantMax / amax);
    const auto q0 = V::to_int(V::mul(x0, inverse)), q1 = V::to_int(V::mul(x1, inverse));
    V::store_split_i16(out->q, out->q + 16, q0);
    V::store_split_i16(out->q + 8, out->q + 24, q1);
    out->scale = tiny ? 0.0f : amax / kQuantMax;
    out->sum = out->scale * static_cast<float>(V::sum_i32(V::add_i32(q0, q1)));
  }
}

}  // namespace bz::ops::cpu
