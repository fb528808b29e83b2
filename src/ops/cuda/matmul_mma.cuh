// Matrix times many vectors on the tensor cores, straight from the GGUF blocks.
//
// Weights stay exact: a 4-bit or 8-bit integer is exact in bf16, and its block's scale and minimum are applied to the
// f32 sums of the block (so are f16 and f32 weights, split in two bf16). Activations are split in two bf16 each, high
// and low, which keeps 16 bits of them. So the result is as good as f32 sums of nearly f32 products.
//
// A cta computes 16 * WN weight rows (8 * WN pairs, linear.h) for BT tokens with 8 = WN * WK warps: warp (wn, wk) has
// the 16 rows of tile wn and of K the runs of 32 elements wk, wk + WK, ...; the WK parts are added in a fixed order. K
// is walked in chunks of four runs: x of the next chunk is on its way to registers, and so are the weights, while the
// tensor cores work on this one.
//
// Fragments of mma.m16n8k16 (PTX ISA): lane = 4 * g + t holds rows g and g + 8 of A. The order of K inside a fragment
// is free as long as A and B agree: thread t takes unit t of the run (weights.cuh), one half of it in each half
// of the instruction's K.
#pragma once

#include "ops/cuda/epilogue.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/weights.cuh"

namespace bz::ops::cuda {

inline constexpr int kMmaWarps = 8;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kChunkRuns = 4;
inline constexpr int kRunElems = 32;
inline constexpr int kTokenBytes = 128;  // of one run in shared memory: 8 pieces of four high and four low bf16

// The A fragments of one weight row of one run: [half run][k low, k high], two bf16 each. `low`: what bf16 leaves.
template <DType W>
inline constexpr bool kTwoParts = W == DType::kF16 || W == DType::kF32;
template <DType W>
inline constexpr bool kScaled = W == DType::kQ4_0 || W == DType::kQ4_1 || W == DType::kQ8_0;

struct RowFragment {
  uint32_t high[2][2];
  uint32_t low[2][2];
  float scale;
  float min;
};

__device__ inline uint32_t pack(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline float high_part(float f) { return __bfloat162float(__float2bfloat16_rn(f)); }

// Four nibbles, spread over 16-bit lanes, to bf16 minus `bias`: 0x4300 is 128.0, whose last mantissa bit counts 1.
__device__ inline uint32_t nibbles_to_bf16(uint32_t spread, uint32_t bias) {
  const uint32_t bits = (spread & 0x000F000Fu) | 0x43004300u;
  const __nv_bfloat162 v =
      __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&bits), *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&v);
}

__device__ inline void fragment_of_nibbles(uint32_t q, uint32_t bias, RowFragment& f) {
  const uint32_t first = __byte_perm(q, 0, 0x4140), second = __byte_perm(q, 0, 0x4342);
  f.high[0][0] = nibbles_to_bf16(first, bias);
  f.high[0][1] = nibbles_to_bf16(second, bias);
  f.high[1][0] = nibbles_to_bf16(first >> 4, bias);
  f.high[1][1] = nibbles_to_bf16(second >> 4, bias);
}

template <DType W>
__device__ inline void make_fragment(const typename UnitCodec<W>::Raw& r, RowFragment& f) {
  if constexpr (W == DType::kQ4_1) {
    fragment_of_nibbles(r.q, 0x43004300u, f);  // - 128
    f.scale = half_bits(r.dm & 0xffffu);
    f.min = half_bits(r.dm >> 16);
  } else if constexpr (W == DType::kQ4_0) {
    fragment_of_nibbles(r.q, 0x43084308u, f);  // - 136: the format's 8 goes too
    f.scale = half_bits(r.d);
  } else if constexpr (W == DType::kBF16) {
    f.high[0][0] = r.x, f.high[0][1] = r.y, f.high[1][0] = r.z, f.high[1][1] = r.w;
  } else {
    float w[kUnit];
    if constexpr (W == DType::kQ8_0) {
      UnitCodec<W>::decode({0x3C00u, r.low, r.high}, w);  // with scale 1: the integers
      f.scale = half_bits(r.d);
    } else {
      UnitCodec<W>::decode(r, w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      f.high[i / 2][i % 2] = pack(w[2 * i], w[2 * i + 1]);
      if constexpr (kTwoParts<W>) {
        f.low[i / 2][i % 2] = pack(w[2 * i] - high_part(w[2 * i]), w[2 * i + 1] - high_part(w[2 * i + 1]));
      }
    }
  }
}

__device__ inline void mma(float (&c)[4], const uint32_t (&row0)[2], const uint32_t (&row1)[2], uint32_t b0,
                           uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(row0[0]), "r"(row1[0]), "r"(row0[1]), "r"(row1[1]), "r"(b0), "r"(b1));
}

// Shared memory of one chunk of x: [runs][tokens][pieces of 16 bytes], and the sum of every run (for minima).
template <int BT>
struct MmaChunk {
  uint4 x[kChunkRuns][BT][kTokenBytes / 16];
  float sum[kChunkRuns][BT];
};
// Every second token has its half runs exchanged, so that the eight lanes of a quarter warp meet 32 banks.
__device__ inline int piece(int half, int t, int token) { return ((half ^ (token & 1)) * 4) + t; }

// x of this cta's tokens, one chunk ahead in registers. A warp loads one token's 128 elements at a time.
template <DType W, int BT, bool WithSums>
struct MmaStage {
  static constexpr int kPer = BT / kMmaWarps;
  float4 v[kPer];
  float squares[kPer] = {};

  __device__ void load(const LinearParams& p, int chunk, int first_token, int num_valid) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const int k = chunk * kChunkRuns * kRunElems + 4 * lane;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int token = first_token + warp + kMmaWarps * i;
      v[i] = {0, 0, 0, 0};
      if (k < p.k && token < num_valid) v[i] = *reinterpret_cast<const float4*>(p.x + token * p.x_stride + k);
    }
  }

  __device__ void store(const LinearParams& p, int chunk, MmaChunk<BT>& out) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
    const int k = chunk * kChunkRuns * kRunElems + 4 * lane;
    float4 g = {1, 1, 1, 1};
    if (p.norm_weight != nullptr && k < p.k) g = __ldg(reinterpret_cast<const float4*>(p.norm_weight + k));
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int t = warp + kMmaWarps * i;
      float4 x = v[i];
      squares[i] = fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, fmaf(x.x, x.x, squares[i]))));
      x = {x.x * g.x, x.y * g.y, x.z * g.z, x.w * g.w};
      uint4 bits;
      bits.x = pack(x.x, x.y);
      bits.y = pack(x.z, x.w);
      bits.z = pack(x.x - high_part(x.x), x.y - high_part(x.y));
      bits.w = pack(x.z - high_part(x.z), x.w - high_part(x.w));
      out.x[lane / 8][t][piece(quad_half<W>(lane), quad_unit<W>(lane) % kUnitsPerRun, t)] = bits;
      if constexpr (WithSums) {
        float s = (x.x + x.y) + (x.z + x.w);
#pragma unroll
        for (int offset = 1; offset < 8; offset *= 2) s += __shfl_xor_sync(0xffffffffu, s, offset);
        if (lane % 8 == 0) out.sum[lane / 8][t] = s;
      }
    }
  }
};

template <DType W, int BT, int WK>
struct MmaTile {
  static constexpr int kRuns = kChunkRuns / WK;  // of a chunk, of one warp
  using Raw = typename UnitCodec<W>::Raw;
  float acc[BT / 8][4] = {};

  __device__ static void load(const std::byte* row0, const std::byte* row1, int chunk, int wk, int num_runs,
                              Raw (&r0)[kRuns], Raw (&r1)[kRuns]) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int run = chunk * kChunkRuns + wk + i * WK;
      if (run >= num_runs) break;
      r0[i] = UnitCodec<W>::load(row0, run * kUnitsPerRun + t);
      r1[i] = UnitCodec<W>::load(row1, run * kUnitsPerRun + t);
    }
  }

  __device__ void compute(const MmaChunk<BT>& chunk, int first_run, int wk, int num_runs, const Raw (&r0)[kRuns],
                          const Raw (&r1)[kRuns]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int run = wk + i * WK;
      if (first_run + run >= num_runs) break;
      RowFragment a, b;
      make_fragment<W>(r0[i], a);
      make_fragment<W>(r1[i], b);
#pragma unroll
      for (int nt = 0; nt < BT / 8; ++nt) {
        const int token = nt * 8 + g;
        float c[4] = {};
        float(&sums)[4] = kScaled<W> ? c : acc[nt];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 x = chunk.x[run][token][piece(half, t, token)];
          mma(sums, a.high[half], b.high[half], x.x, x.y);
          mma(sums, a.high[half], b.high[half], x.z, x.w);
          if constexpr (kTwoParts<W>) mma(sums, a.low[half], b.low[half], x.x, x.y);
        }
        if constexpr (kScaled<W>) {
          acc[nt][0] = fmaf(a.scale, c[0], acc[nt][0]);
          acc[nt][1] = fmaf(a.scale, c[1], acc[nt][1]);
          acc[nt][2] = fmaf(b.scale, c[2], acc[nt][2]);
          acc[nt][3] = fmaf(b.scale, c[3], acc[nt][3]);
        }
        if constexpr (W == DType::kQ4_1) {
          const float2 s = *reinterpret_cast<const float2*>(&chunk.sum[run][nt * 8 + 2 * t]);
          acc[nt][0] = fmaf(a.min, s.x, acc[nt][0]);
          acc[nt][1] = fmaf(a.min, s.y, acc[nt][1]);
          acc[nt][2] = fmaf(b.min, s.x, acc[nt][2]);
          acc[nt][3] = fmaf(b.min, s.y, acc[nt][3]);
        }
      }
    }
  }

  // Adds the parts of the other warps of this tile, in order, in warp wk == 0. `shared`: [kMmaWarps][BT / 8][4][32].
  __device__ void merge(float* shared, int wn, int wk) {
    constexpr int WN = kMmaWarps / WK;
    constexpr int kValues = BT / 8 * 4;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kValues; ++i) shared[((wk * WN + wn) * kValues + i) * kWarp + lane] = acc[i / 4][i % 4];
    __syncthreads();
    if (wk != 0) return;
    for (int other = 1; other < WK; ++other) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) acc[i / 4][i % 4] += shared[((other * WN + wn) * kValues + i) * kWarp + lane];
    }
  }
};

template <DType W, Epilogue E, int BT, int WK>
__global__ void __launch_bounds__(kMmaThreads, 2) matmul_mma_kernel(const __grid_constant__ LinearParams p) {
  constexpr int WN = kMmaWarps / WK;
  extern __shared__ uint4 memory[];
  auto* chunks = reinterpret_cast<MmaChunk<BT>*>(memory);  // [2]
  __shared__ float scale[BT];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int wn = warp % WN, wk = warp / WN;
  const int pair = static_cast<int>(blockIdx.x) * WN * 8 + wn * 8 + lane / 4;
  const bool has_pair = pair < p.num_pairs;
  const RowPair rows = pair_rows<E>(p, has_pair ? pair : 0);
  const int64_t row_size = weight_row_bytes<W>(p.k);
  const std::byte* row0 = p.parts[rows.part].weight + rows.row0 * row_size;
  const std::byte* row1 = p.parts[rows.part1].weight + max(rows.row1, 0) * row_size;
  const int num_runs = p.k / kRunElems, num_chunks = (num_runs + kChunkRuns - 1) / kChunkRuns;

  using Tile = MmaTile<W, BT, WK>;
  Tile tile;
  typename Tile::Raw now0[Tile::kRuns], now1[Tile::kRuns], next0[Tile::kRuns], next1[Tile::kRuns];
  Tile::load(row0, row1, 0, wk, num_runs, now0, now1);  // weights depend on nothing
  wait_for_previous();
  let_next_start();

  const int num_valid = p.num_valid.get();
  const int first_token = static_cast<int>(blockIdx.y) * BT;
  if (first_token < num_valid) {
    MmaStage<W, BT, W == DType::kQ4_1> stage;
    stage.load(p, 0, first_token, num_valid);
    stage.store(p, 0, chunks[0]);
    __syncthreads();
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const bool more = chunk + 1 < num_chunks;
      if (more) {
        stage.load(p, chunk + 1, first_token, num_valid);
        Tile::load(row0, row1, chunk + 1, wk, num_runs, next0, next1);
      }
      tile.compute(chunks[chunk % 2], chunk * kChunkRuns, wk, num_runs, now0, now1);
      if (more) {
        stage.store(p, chunk + 1, chunks[(chunk + 1) % 2]);
#pragma unroll
        for (int i = 0; i < Tile::kRuns; ++i) now0[i] = next0[i], now1[i] = next1[i];
      }
      __syncthreads();
    }
    if (p.norm_weight != nullptr) {
#pragma unroll
      for (int i = 0; i < MmaStage<W, BT, true>::kPer; ++i) {
        const float sum = warp_sum(stage.squares[i]);
        if (lane == 0) scale[warp + kMmaWarps * i] = rsqrtf(sum / static_cast<float>(p.k) + p.norm_eps);
      }
    }
    if constexpr (WK > 1) tile.merge(reinterpret_cast<float*>(memory), wn, wk);
    __syncthreads();
  }
  if (wk != 0 || !has_pair) return;
#pragma unroll
  for (int nt = 0; nt < BT / 8; ++nt) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int in_cta = nt * 8 + lane % 4 * 2 + e, token = first_token + in_cta;
      if (token >= p.tokens) continue;
      const float factor = p.norm_weight != nullptr && token < num_valid ? scale[in_cta] : 1.0f;
      finish_pair<E>(p, rows, token, num_valid, tile.acc[nt][e] * factor, tile.acc[nt][2 + e] * factor);
    }
  }
}

template <DType W, int BT, int WK>
void launch_mma_as(device::Stream& stream, const char* op, const LinearParams& p) {
  constexpr int kPairs = kMmaWarps / WK * 8;
  constexpr size_t kMerge = sizeof(float) * kMmaWarps * (BT / 8) * 4 * kWarp;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>((p.num_pairs + kPairs - 1) / kPairs),
                static_cast<unsigned>((p.tokens + BT - 1) / BT)};
  shape.cta = kMmaThreads;
  shape.shared_bytes = 2 * sizeof(MmaChunk<BT>) > kMerge ? 2 * sizeof(MmaChunk<BT>) : kMerge;
  dispatch_epilogue(p.epilogue,
                    [&](auto e) { launch(stream, op, matmul_mma_kernel<W, decltype(e)::value, BT, WK>, shape, p); });
}

template <DType W>
void launch_mma(device::Stream& stream, const char* op, const LinearParams& p, const MmaConfig& config) {
  if (config.tokens_per_cta == 16) {
    if (config.k_split == 1) return launch_mma_as<W, 16, 1>(stream, op, p);
    return launch_mma_as<W, 16, 4>(stream, op, p);
  }
  if (config.k_split == 1) return launch_mma_as<W, 32, 1>(stream, op, p);
  return launch_mma_as<W, 32, 4>(stream, op, p);
}

}  // namespace bz::ops::cuda
