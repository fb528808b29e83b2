// The one order of sums of the fast attention. It depends on a query's own visible positions alone (PAD-9b): not on how
// many queries a tile holds, on the chunking of a prompt, on the threads or on the instruction set.
//
// Positions are cut at absolute multiples of kSplit. Of one query, in one split, over the keys it sees:
//     s_k = dot(q * scale * log2(e), k)     16 partial sums over the head, then the tree of vec.h
//     m   = max s_k
//     p_k = 2^(s_k - m)                     exp2_of() of vec.h
//     l   = sum p_k                         16 partial sums by k % 16, then the tree
//     a   = sum p_k * v_k                   fma in ascending k, from 0
// Splits are merged in ascending order, in float32, splits without a visible key left out:
//     M' = max(M, m);  x = 2^(M - M');  y = 2^(m - M');  L = fma(L, x, l * y);  A = fma(A, x, a * y);  M = M'
// and the output is A / L; zeros for a query that sees nothing. A key that is not visible, or whose block is null,
// takes part in no operation above (PAD-7): p is never multiplied onto its value.
#pragma once

#include <cstdint>

#include "ops/cpu/visible.h"

namespace bz::ops::cpu {

inline constexpr int kSplit = 128;            // positions
inline constexpr int kKeyTile = 32;           // keys converted to f32 at a time
inline constexpr int kMaxQueries = 32;        // of a tile
inline constexpr int kMaxQueryFloats = 4096;  // of a tile: queries times padded head

// Partial result of one query over one split, in scratch: {m, l, a[padded head]}.
inline constexpr int kPartialHeader = 16;  // floats before a: m, l, then padding up to a cache line
inline int64_t partial_floats(int32_t padded_head) { return kPartialHeader + padded_head; }

}  // namespace bz::ops::cpu
