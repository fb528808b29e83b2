// Register tiles of the quantised matrix product: R token rows times G groups of 16 columns, over a run of blocks, in
// the order of matmul_order.h. Two of them, which differ in where the weights come from and in nothing else:
//   direct_tile   straight from the GGUF rows: each weight is used R times (decode)
//   panel_tile    from a panel unpacked before, for many token rows (prefill, batched decode)
// Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after weight_blocks.h.
#pragma once

namespace bz::ops::cpu {

// Where a tile reads activations and keeps its outputs. Row r: acts + r * act_stride, out + r * out_stride.
struct TileRows {
  const ActBlock* acts;
  int64_t act_stride;  // blocks
  float* out;
  int64_t out_stride;  // floats
};

// Sixteen weight rows, from one block on. `next`: how far ahead the rows of the work to come lie, for prefetching.
struct TileWeights {
  const std::byte* rows;
  int64_t stride;
  int64_t next;
  const uint16_t (*scales)[16];  // [block]; only for types with kScalesApart
};

// Prefetches what lies `next` behind bytes [begin, end) of the 16 rows, into L2: what is in use has L1 to itself.
BZ_VEC void prefetch_rows(const TileWeights& w, int begin, int end) {
  for (int at = (begin + 63) / 64 * 64; at < end; at += 64) {
    const std::byte* p = w.rows + w.next + at;
    for (int r = 0; r < 16; ++r, p += w.stride) __builtin_prefetch(p, 0, 2);
  }
}

// Calls step(tag of the number of blocks, first block) for runs of W::kRun blocks, then for the rest.
template <class W, class Step>
BZ_VEC void for_each_run_of_blocks(int num_blocks, Step&& step) {
  int b = 0;
  for (; b + W::kRun <= num_blocks; b += W::kRun) step.template operator()<W::kRun>(b);
  if constexpr (W::kRun > 2) {
    for (; b + 2 <= num_blocks; b += 2) step.template operator()<2>(b);
  }
  if constexpr (W::kRun > 1) {
    for (; b < num_blocks; ++b) step.template operator()<1>(b);
  }
}

// The end of a block for one row and 16 columns.
template <class V, bool HasMin>
BZ_VEC typename V::F block_step(typename V::F acc, typename V::I sum, const ActBlock& act, typename V::F d,
                                typename V::F m) {
  acc = V::fma(d, V::mul(V::to_float(sum), V::set1(act.scale)), acc);
  if constexpr (HasMin) acc = V::fma(m, V::set1(act.sum), acc);
  return acc;
}

// ---- direct ----

// sums[r][chain] += the products of one part of a block. One row alone is cut into four chains to hide latency.
template <class V, class Run, int Block, int Part, int R, int Chains>
BZ_VEC void dot_part(const Run& w, const ActBlock* acts, int64_t act_stride, typename V::I (&sums)[R][Chains]) {
  BZ_UNROLL
  for (int j = 0; j < 4; ++j) {
    const auto pair = Run::template pair<Block, Part>(w, j);
    BZ_UNROLL
    for (int r = 0; r < R; ++r) {
      auto& sum = sums[r][Part % Chains];
      sum = V::dot_pair(sum, pair, acts[r * act_stride].q + 8 * Part + 2 * j);
    }
  }
}

template <class V, class Run, bool HasMin, int Block, int B, int R>
BZ_VEC void direct_blocks(const Run& w, const ActBlock* acts, int64_t act_stride, typename V::F (&acc)[R]) {
  constexpr int kChains = R == 1 ? 4 : R == 2 ? 2 : 1;
  typename V::I sums[R][kChains];
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    BZ_UNROLL
    for (int c = 0; c < kChains; ++c) sums[r][c] = V::zero_i();
  }
  dot_part<V, Run, Block, 0, R, kChains>(w, acts, act_stride, sums);
  dot_part<V, Run, Block, 1, R, kChains>(w, acts, act_stride, sums);
  dot_part<V, Run, Block, 2, R, kChains>(w, acts, act_stride, sums);
  dot_part<V, Run, Block, 3, R, kChains>(w, acts, act_stride, sums);
  const auto d = Run::template d<Block>(w), m = Run::template m<Block>(w);
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    auto sum = sums[r][0];
    BZ_UNROLL
    for (int c = 1; c < kChains; ++c) sum = V::add_i32(sum, sums[r][c]);
    acc[r] = block_step<V, HasMin>(acc[r], sum, acts[r * act_stride], d, m);
  }
  if constexpr (Block + 1 < B) direct_blocks<V, Run, HasMin, Block + 1, B, R>(w, acts + 1, act_stride, acc);
}

template <class V, DType T, int R>
[[gnu::noinline]] void direct_tile(const TileWeights& w, int num_blocks, const TileRows& t, int columns) {
  using W = WeightBlocks<V, T>;
  typename V::F acc[R];
  BZ_UNROLL
  for (int r = 0; r < R; ++r) acc[r] = V::load_n(t.out + r * t.out_stride, columns);
  for_each_run_of_blocks<W>(num_blocks, [&]<int B>(int b) __attribute__((always_inline)) {
    using Run = typename W::template Run<B>;
    prefetch_rows(w, b * W::kBytes, (b + B) * W::kBytes);
    Run run;
    Run::load(run, w.rows + b * W::kBytes, w.stride, w.scales + b);
    direct_blocks<V, Run, W::kHasMin, 0, B, R>(run, t.acts + b, t.act_stride, acc);
  });
  BZ_UNROLL
  for (int r = 0; r < R; ++r) V::store_n(t.out + r * t.out_stride, acc[r], columns);
}

// ---- panel ----

// One block of 16 columns, unpacked: pair i of the permuted activations in pairs[i], lane = column.
struct alignas(64) PanelBlock {
  int32_t pairs[16][16];
  float d[16];
  float m[16];
};

template <class V, class Run, int Block, int Part>
BZ_VEC void unpack_part(const Run& w, PanelBlock& out) {
  BZ_UNROLL
  for (int j = 0; j < 4; ++j) V::store_i(out.pairs[4 * Part + j], Run::template pair<Block, Part>(w, j));
}

template <class V, class Run, bool HasMin, int Block, int B>
BZ_VEC void unpack_blocks(const Run& w, PanelBlock* out) {
  unpack_part<V, Run, Block, 0>(w, *out);
  unpack_part<V, Run, Block, 1>(w, *out);
  unpack_part<V, Run, Block, 2>(w, *out);
  unpack_part<V, Run, Block, 3>(w, *out);
  V::store(out->d, Run::template d<Block>(w));
  if constexpr (HasMin) V::store(out->m, Run::template m<Block>(w));
  if constexpr (Block + 1 < B) unpack_blocks<V, Run, HasMin, Block + 1, B>(w, out + 1);
}

template <class V, DType T>
[[gnu::noinline]] void unpack_panel(const TileWeights& w, int num_blocks, PanelBlock* out) {
  using W = WeightBlocks<V, T>;
  for_each_run_of_blocks<W>(num_blocks, [&]<int B>(int b) __attribute__((always_inline)) {
    using Run = typename W::template Run<B>;
    prefetch_rows(w, b * W::kBytes, (b + B) * W::kBytes);
    Run run;
    Run::load(run, w.rows + b * W::kBytes, w.stride, w.scales + b);
    unpack_blocks<V, Run, W::kHasMin, 0, B>(run, out + b);
  });
}

// Group g's panel at panel + g * panel_stride, its columns at out + 16 * g; `columns` counts those of the last group.
template <class V, bool HasMin, int R, int G>
[[gnu::noinline]] void panel_tile(const PanelBlock* panel, int64_t panel_stride, int num_blocks, const TileRows& t,
                                  int columns) {
  typename V::F acc[R][G];
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    BZ_UNROLL
    for (int g = 0; g < G; ++g) {
      acc[r][g] = V::load_n(t.out + r * t.out_stride + 16 * g, g == G - 1 ? columns : 16);
    }
  }
  for (int b = 0; b < num_blocks; ++b, ++panel) {
    const ActBlock* acts = t.acts + b;
    typename V::I sums[R][G];
    BZ_UNROLL
    for (int r = 0; r < R; ++r) {
      BZ_UNROLL
      for (int g = 0; g < G; ++g) sums[r][g] = V::zero_i();
    }
    BZ_UNROLL
    for (int i = 0; i < 16; ++i) {
      typename V::I w[G];
      BZ_UNROLL
      for (int g = 0; g < G; ++g) w[g] = V::load_i(panel[g * panel_stride].pairs[i]);
      BZ_UNROLL
      for (int r = 0; r < R; ++r) {
        BZ_UNROLL
        for (int g = 0; g < G; ++g) sums[r][g] = V::dot_pair(sums[r][g], w[g], acts[r * t.act_stride].q + 2 * i);
      }
    }
    BZ_UNROLL
    for (int g = 0; g < G; ++g) {
      const auto d = V::load(panel[g * panel_stride].d), m = HasMin ? V::load(panel[g * panel_stride].m) : V::zero();
      BZ_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r][g] = block_step<V, HasMin>(acc[r][g], sums[r][g], acts[r * t.act_stride], d, m);
      }
    }
  }
  BZ_UNROLL
  for (int r = 0; r < R; ++r) {
    BZ_UNROLL
    for (int g = 0; g < G; ++g) {
      V::store_n(t.out + r * t.out_stride + 16 * g, acc[r][g], g == G - 1 ? columns : 16);
    }
  }
}

}  // namespace bz::ops::cpu
