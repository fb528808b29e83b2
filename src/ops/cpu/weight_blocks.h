// How sixteen rows of weight blocks become integers in registers, per GGUF type. A new type (Q5_0, Q4_K, Q6_K) is a new
// WeightBlocks here and a case in matmul_kernel.h.
//
// kScalesApart: d is read from what collect_f16() gathered, `scales`. Run<B> holds B consecutive blocks of 16 rows as
// raw bytes, transposed: lane = row, 32 bits = 4 bytes of that row. pair<Block, Part>(j), Part and j in 0..3, cuts out
// of them the weights that meet activations q[8 * Part + 2 * j] and the one after it (matmul_order.h); d<Block>() and
// m<Block>() are the block's scales, one a lane. Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

// Part of the nibbles in 4 of a block's 16 bytes: of each 16-bit lane, bits 0-3 are element 2i, 4-7 element 16 + 2i,
// 8-11 element 2i + 1, 12-15 element 17 + 2i.
template <class V, int Part>
BZ_VEC typename V::I nibble_pair(typename V::I bytes) {
  const auto mask = V::set1_i16(15);
  if constexpr (Part == 0) return V::and_i(bytes, mask);
  if constexpr (Part == 1) return V::and_i(V::template shr_u16<4>(bytes), mask);
  if constexpr (Part == 2) return V::and_i(V::template shr_u16<8>(bytes), mask);
  if constexpr (Part == 3) return V::template shr_u16<12>(bytes);
}

// The f16 scales of 16 rows for each of `num_blocks` blocks, where they are not part of whole 32-bit words. Collected
// before the main loop: 16 short stores and one long load of them side by side would stall.
inline void collect_f16(const std::byte* p, int64_t stride, int block_bytes, int num_blocks, uint16_t (*out)[16]) {
  for (int b = 0; b < num_blocks; ++b, p += block_bytes) {
    BZ_UNROLL
    for (int r = 0; r < 16; ++r) __builtin_memcpy(&out[b][r], p + r * stride, 2);
  }
}

template <class V, DType T>
struct WeightBlocks;

template <class V>
struct WeightBlocks<V, DType::kQ4_1> {
  static constexpr int kBytes = 20;  // f16 d, f16 m, 16 bytes of nibbles: five 32-bit words
  static constexpr int kRun = 4;     // four blocks are five loads of 16 bytes a row
  static constexpr bool kHasMin = true;
  static constexpr bool kScalesApart = false;

  template <int B>
  struct Run {
    static constexpr int kWords = 5 * B;
    static constexpr int kLoads = (kWords + 3) / 4;
    typename V::I words[kLoads][4];

    // The last load ends with the last word, so nothing past the run is read.
    static constexpr int offset(int load) { return load * 4 < kWords - 4 ? load * 4 : kWords - 4; }
    BZ_VEC void load(Run& run, const std::byte* p, int64_t stride, const uint16_t (*)[16]) {
      BZ_UNROLL
      for (int i = 0; i < kLoads; ++i) V::load_rows(p + 4 * offset(i), stride, run.words[i]);
    }
    BZ_VEC typename V::I word(const Run& run, int i) {
      const int load = i / 4 < kLoads - 1 ? i / 4 : kLoads - 1;
      return run.words[load][i - offset(load)];
    }
    template <int Block, int Part>
    BZ_VEC typename V::I pair(const Run& run, int j) {
      return nibble_pair<V, Part>(word(run, 5 * Block + 1 + j));
    }
    template <int Block>
    BZ_VEC typename V::F d(const Run& run) {
      return V::f16_low(word(run, 5 * Block));
    }
    template <int Block>
    BZ_VEC typename V::F m(const Run& run) {
      return V::f16_high(word(run, 5 * Block));
    }
  };
};

template <class V>
struct WeightBlocks<V, DType::kQ4_0> {
  static constexpr int kBytes = 18;  // f16 d, 16 bytes of nibbles
  static constexpr int kRun = 1;
  static constexpr bool kHasMin = false;
  static constexpr bool kScalesApart = true;

  template <int B>
  struct Run {
    typename V::I words[4];
    typename V::F scale;

    BZ_VEC void load(Run& run, const std::byte* p, int64_t stride, const uint16_t (*scales)[16]) {
      run.scale = V::load_f16(scales[0]);
      V::load_rows(p + 2, stride, run.words);
    }
    template <int Block, int Part>
    BZ_VEC typename V::I pair(const Run& run, int j) {
      return V::sub_i16(nibble_pair<V, Part>(run.words[j]), V::set1_i16(8));
    }
    template <int Block>
    BZ_VEC typename V::F d(const Run& run) {
      return run.scale;
    }
    template <int Block>
    BZ_VEC typename V::F m(const Run&) {
      return V::zero();
    }
  };
};

template <class V>
struct WeightBlocks<V, DType::kQ8_0> {
  static constexpr int kBytes = 34;  // f16 d, 32 bytes
  static constexpr int kRun = 1;
  static constexpr bool kHasMin = false;
  static constexpr bool kScalesApart = true;

  template <int B>
  struct Run {
    typename V::I first[4], second[4];  // elements 0..15 and 16..31
    typename V::F scale;

    BZ_VEC void load(Run& run, const std::byte* p, int64_t stride, const uint16_t (*scales)[16]) {
      run.scale = V::load_f16(scales[0]);
      V::load_rows(p + 2, stride, run.first);
      V::load_rows(p + 18, stride, run.second);
    }
    template <int Block, int Part>
    BZ_VEC typename V::I pair(const Run& run, int j) {
      const auto bytes = Part % 2 == 0 ? run.first[j] : run.second[j];
      if constexpr (Part < 2) return V::template shr_i16<8>(V::template shl_i16<8>(bytes));
      return V::template shr_i16<8>(bytes);
    }
    template <int Block>
    BZ_VEC typename V::F d(const Run& run) {
      return run.scale;
    }
    template <int Block>
    BZ_VEC typename V::F m(const Run&) {
      return V::zero();
    }
  };
};

}  // namespace bz::ops::cpu
