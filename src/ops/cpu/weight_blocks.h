// How sixteen rows of one weight block become integers in registers, per GGUF type. A new type (Q5_0, Q4_K, Q6_K) is a
// new WeightBlocks here and a case in matmul_kernel.h.
//
// `load` fetches the raw bytes of 16 rows, transposed: lane = row, 32 bits = 4 bytes of that row. `pair` cuts out of
// them, for part 0..3 and j 0..3, the weights that meet activations q[8 * part + 2 * j] and the one after it.
// Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

// The nibbles of 16 bytes: of each 16-bit lane, bits 0-3 are element 2i, 4-7 element 16 + 2i, 8-11 element 2i + 1,
// 12-15 element 17 + 2i.
template <class V>
struct Nibbles {
  typename V::I t[4];

  BZ_VEC void load(Nibbles& n, const std::byte* qs, int64_t stride) { V::load_rows(qs, stride, n.t); }
  template <int Part>
  BZ_VEC typename V::I pair(const Nibbles& n, int j) {
    const auto mask = V::set1_i16(15);
    if constexpr (Part == 0) return V::and_i(n.t[j], mask);
    if constexpr (Part == 1) return V::and_i(V::template shr_u16<4>(n.t[j]), mask);
    if constexpr (Part == 2) return V::and_i(V::template shr_u16<8>(n.t[j]), mask);
    if constexpr (Part == 3) return V::template shr_u16<12>(n.t[j]);
  }
};

template <class V, DType T>
struct WeightBlocks;

template <class V>
struct WeightBlocks<V, DType::kQ4_1> {
  static constexpr int kBytes = 20;
  static constexpr bool kHasMin = true;
  Nibbles<V> raw;

  BZ_VEC void load(WeightBlocks& w, const std::byte* block, int64_t stride) {
    Nibbles<V>::load(w.raw, block + 4, stride);
  }
  template <int Part>
  BZ_VEC typename V::I pair(const WeightBlocks& w, int j) {
    return Nibbles<V>::template pair<Part>(w.raw, j);
  }
};

template <class V>
struct WeightBlocks<V, DType::kQ4_0> {
  static constexpr int kBytes = 18;
  static constexpr bool kHasMin = false;
  Nibbles<V> raw;

  BZ_VEC void load(WeightBlocks& w, const std::byte* block, int64_t stride) {
    Nibbles<V>::load(w.raw, block + 2, stride);
  }
  template <int Part>
  BZ_VEC typename V::I pair(const WeightBlocks& w, int j) {
    return V::sub_i16(Nibbles<V>::template pair<Part>(w.raw, j), V::set1_i16(8));
  }
};

template <class V>
struct WeightBlocks<V, DType::kQ8_0> {
  static constexpr int kBytes = 34;
  static constexpr bool kHasMin = false;
  typename V::I first[4], second[4];  // elements 0..15 and 16..31

  BZ_VEC void load(WeightBlocks& w, const std::byte* block, int64_t stride) {
    V::load_rows(block + 2, stride, w.first);
    V::load_rows(block + 18, stride, w.second);
  }
  template <int Part>
  BZ_VEC typename V::I pair(const WeightBlocks& w, int j) {
    const auto bytes = Part % 2 == 0 ? w.first[j] : w.second[j];
    if constexpr (Part < 2) return V::template shr_i16<8>(V::template shl_i16<8>(bytes));
    return V::template shr_i16<8>(bytes);
  }
};

// d (and m) of 16 rows of one block, still f16.
struct ScaleBlock {
  uint16_t d[16];
  uint16_t m[16];
};

// Collects the scales of `num_blocks` blocks of 16 rows. Reads the rows one after the other, so the hardware prefetcher
// sees one stream through the weights; the main loop, which jumps from row to row, then finds them in the cache.
template <class V, DType T>
BZ_VEC void load_scales(const std::byte* rows, int64_t stride, int num_blocks, ScaleBlock* out) {
  using W = WeightBlocks<V, T>;
  BZ_UNROLL
  for (int r = 0; r < 16; ++r) {
    const std::byte* p = rows + r * stride;
    for (int b = 0; b < num_blocks; ++b, p += W::kBytes) {
      __builtin_memcpy(&out[b].d[r], p, 2);
      if constexpr (W::kHasMin) __builtin_memcpy(&out[b].m[r], p + 2, 2);
    }
  }
}

}  // namespace bz::ops::cpu
