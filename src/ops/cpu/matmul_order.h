// The one order of sums of the fast matrix product with block-quantised weights. It depends on K alone (PAD-9b): not on
// the number of rows, their place, the threads, the tiles, or the instruction set.
//
// Activations. Each block of 32 is rounded to 16-bit integers: scale = amax / kQuantMax, q = round_even(x / scale), so
// the error of an activation is below 2^-15 of its block's largest. (8 bits are what other CPU engines use; there the
// rounding is nearly all of the error of the logits.) A block whose amax is below kTinyBlock counts as zeros; a NaN or
// an infinity in a block makes its scale NaN or infinite and so poisons its own row, and no other.
//
// Weights. w = d * q + m (m is 0 except in Q4_1), q an integer of up to 8 bits.
//
// One output, in float32, for blocks b = 0, 1, 2, ... in this order:
//     acc = fma(d_b, float(I_b) * scale_b, acc)     I_b = sum of q_w * q_x over the block
//     acc = fma(m_b, scale_b * float(S_b), acc)     S_b = sum of q_x; Q4_1 only
// I_b and S_b are exact: |I_b| <= 32 * 128 * kQuantMax < 2^28 fits an int32. So the order of sums inside a block does
// not matter, which is what lets a matrix-vector and a matrix-matrix kernel agree to the last bit. acc starts at 0, or
// at the output's old value if the product is accumulated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bz::ops::cpu {

inline constexpr int kBlock = 32;
inline constexpr float kQuantMax = 32512.0f;
inline constexpr float kTinyBlock = 1e-30f;

// A block of activations. q is permuted so that a 16-bit lane of raw weight bytes meets its partner without a shuffle:
// elements 0 2 .. 14, 16 18 .. 30, 1 3 .. 15, 17 19 .. 31.
struct ActBlock {
  float scale;
  float sum;  // scale * S
  int16_t q[kBlock];
};

// Plain types (f32, f16, bf16) are not quantised; their order is that of vec.h: 16 partial sums, element k adds to sum
// k % 16 by fma in ascending k, then the tree; the output's old value is added last.

}  // namespace bz::ops::cpu
