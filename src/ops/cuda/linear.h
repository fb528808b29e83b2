// Linear: what every matrix product here computes, fused with what stands before and after it.
//
//   y[t] = W * norm(x[t])          norm: RMSNorm, or nothing
//   then, per pair of weight rows, an epilogue: store (or add to the residual), silu(y0) * y1, or rotate and store into
//   the cache.
//
// Weight rows are walked in pairs, because two of the epilogues need two rows of one thread: gate and up, or the two
// halves of a rotation. Which rows form pair p is pair_rows().
#pragma once

#include "device/cuda/gpu_limits.h"
#include "device/stream.h"
#include "ops/params.h"

namespace bz::ops::cuda {

enum class Epilogue : int32_t {
  kStore,      // out = y, or out += y: LinearParams::accumulate
  kSiluMul,    // parts gate, up: out of part 0 = silu(gate) * up
  kRopeStore,  // parts q, k, v: q rotated into its out; k rotated and v into the cache
};

struct LinearPart {
  const std::byte* weight = nullptr;  // [n, k]
  int32_t n = 0;
  float* out = nullptr;  // f32 [T, n]
  int64_t out_stride = 0;
};

struct LinearParams {
  const float* x = nullptr;  // f32 [T, k]
  int64_t x_stride = 0;
  int32_t tokens = 0;  // T, padded
  int32_t k = 0;
  const float* norm_weight = nullptr;  // f32 [k]; nullptr: x as it is
  float norm_eps = 0;
  LinearPart parts[3];
  int32_t num_parts = 0;
  int32_t num_pairs = 0;
  Epilogue epilogue = Epilogue::kStore;
  int32_t accumulate = 0;  // kStore: add to out; padding rows are left at zero
  // kRopeStore.
  const float* cos_sin = nullptr;  // f32 [T, hd]
  int64_t cos_sin_stride = 0;
  RopeStyle style = RopeStyle::kAdjacentPairs;
  const kv::SlotId* slots = nullptr;  // [T]
  KvLayer layer;
  ValidCount num_valid;
};

// Two weight rows that one thread finishes together. row1 is -1 behind the last row of an odd part.
struct RowPair {
  int32_t part;
  int32_t part1;  // of row1: differs for gate and up
  int32_t row0;
  int32_t row1;
  int32_t rope;  // kRopeStore: index of the rotation, i < hd / 2
};

template <Epilogue E>
BZ_HD inline RowPair pair_rows(const LinearParams& p, int32_t pair) {
  if constexpr (E == Epilogue::kSiluMul) return {0, 1, pair, pair, 0};
  int32_t part = 0;
  while (part + 1 < p.num_parts && pair >= (p.parts[part].n + 1) / 2) pair -= (p.parts[part++].n + 1) / 2;
  if constexpr (E == Epilogue::kRopeStore) {
    if (part < 2) {
      const int32_t hd = p.layer.head_dim, half = hd / 2;
      const int32_t head = pair / half * hd, i = pair % half;
      if (p.style == RopeStyle::kAdjacentPairs) return {part, part, head + 2 * i, head + 2 * i + 1, i};
      return {part, part, head + i, head + half + i, i};
    }
  }
  const int32_t row1 = 2 * pair + 1 < p.parts[part].n ? 2 * pair + 1 : -1;
  return {part, part, 2 * pair, row1, 0};
}

// Number of pairs of the parts as they stand. REQUIRES: parts, num_parts, epilogue set.
inline int32_t count_pairs(const LinearParams& p) {
  if (p.epilogue == Epilogue::kSiluMul) return p.parts[0].n;
  int32_t pairs = 0;
  for (int i = 0; i < p.num_parts; ++i) pairs += (p.parts[i].n + 1) / 2;
  return pairs;
}

// The Linear of an op's parameters; of a matmul, of its parts [first, end), which have one type.
LinearParams linear_of(const MatmulParams& m, int32_t first, int32_t end);
LinearParams linear_of(const NormQkvParams& n);
LinearParams linear_of(const NormGateUpParams& n);

// How a Linear is computed. Pure functions of shapes and of the GPU, so that a graph key has one. invariant: the order
// of sums may not depend on the number of tokens (PAD-9b).
struct MatvecConfig {
  int32_t tokens_per_cta = 1;  // 1, 2 or 4
  int32_t warps = 4;           // of a cta: 4, or 8 for one token
  int32_t num_ctas = 1;        // along the weight rows
};
struct StreamConfig {
  int32_t tokens_per_cta = 1;  // 1, 2 or 4
  int32_t warps = 8;           // of a cta: 8, or 4 for one token
  int32_t num_ctas = 1;        // along the weight rows
  int32_t num_stages = 0;      // chunks of a warp on their way; 0: rows that bulk copies cannot fetch
  int64_t shared_bytes = 0;    // of a cta
};
struct MmaConfig {
  int32_t tokens_per_cta = 16;  // 16 or 32
  int32_t k_split = 1;          // warps of a cta that share a tile's K: 1 or 4
};
inline constexpr int32_t kChunkElems = 1024;     // of a weight row: what matvec_stream.cuh fetches at once
inline constexpr int32_t kMaxOneK = 6 * 32 * 8;  // what matvec_one.cuh holds in registers
// The tensor cores: for many tokens, and for any number of them if a row of x is too long for shared_bytes, what a cta
// can have: matmul_mma.cuh alone walks K without holding all of x.
bool prefer_mma(int32_t tokens, int32_t k, int64_t shared_bytes, bool invariant);
// Products by a library (split_linear.h), if there is one; never for invariant sums, whose order it does not promise.
// elements: of the weights of all parts.
bool prefer_split(DType weight, int64_t elements, int32_t tokens, bool invariant);
// REQUIRES, as choose_stream(): not prefer_mma().
MatvecConfig choose_matvec(int32_t tokens, int32_t k, int32_t num_pairs, const device::cuda::GpuLimits& gpu);
StreamConfig choose_stream(const LinearParams& p, DType dtype, int32_t num_sms);
MmaConfig choose_mma(int32_t tokens, int32_t num_pairs, int32_t num_sms, bool invariant);

// A Linear on matvec.cuh, which a GPU with bulk copies leaves to matvec_one.cuh and matvec_stream.cuh wherever it can:
// for its tests on such a GPU.
void linear_by_matvec(device::Stream& stream, DType dtype, const LinearParams& p);

}  // namespace bz::ops::cuda
