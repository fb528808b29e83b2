// The CPU kernels of every op, one namespace per instruction set, each with the same names. A kernel runs on all
// workers of the pool at once; op_table.cc turns them into launchers. REQUIRES: shapes checked by shape_checks.h.
//
// Layers of kernels, from readable to fast:
//   reference    plain C++, f32 activations: what the others are tested against
//   avx2         AVX2, FMA, F16C
//   avx512       AVX-512 F/BW/DQ/VL and VNNI
// The fast two follow one order of sums (matmul_order.h, attention_order.h) and give the same bits as each other.
#pragma once

#include "device/cpu/worker.h"
#include "ops/params.h"

#if defined(__x86_64__)
#define BZ_OPS_X86 1
#endif

namespace bz::ops::cpu {

using device::cpu::Worker;

#define BZ_DECLARE_KERNELS_                                                                  \
  void embed(const EmbedParams&, Worker&);                                                   \
  void rms_norm(const RmsNormParams&, Worker&);                                              \
  void matmul(const MatmulParams&, Worker&);                                                 \
  void rope_table(const RopeTableParams&, Worker&);                                          \
  void rope_store(const RopeStoreParams&, Worker&);                                          \
  void attention(const AttentionParams&, Worker&);                                           \
  void silu_mul(const SiluMulParams&, Worker&);                                              \
  void gather_rows(const GatherRowsParams&, Worker&);                                        \
  void sample_greedy(const SampleParams&, Worker&);                                          \
  void sample_random(const SampleParams&, Worker&);                                          \
  size_t matmul_scratch_bytes(int32_t tokens, int32_t k);                                    \
  size_t attention_scratch_bytes(int32_t num_heads, int32_t head_dim, int32_t max_position); \
  size_t sample_scratch_bytes(int32_t rows, int32_t vocab);

namespace reference {
BZ_DECLARE_KERNELS_
// The same in every table: they cost what it takes to read memory a few times, and only steps that ask pay it.
void copy_blocks(const CopyBlocksParams&, Worker&);
void adjust_logits(const AdjustLogitsParams&, Worker&);
void logprobs(const LogprobsParams&, Worker&);
void draft(const DraftParams&, Worker&);
void zero_rows(const ZeroRowsParams&, Worker&);
}  // namespace reference
namespace avx2 {
BZ_DECLARE_KERNELS_
}
namespace avx512 {
BZ_DECLARE_KERNELS_
}
#undef BZ_DECLARE_KERNELS_

}  // namespace bz::ops::cpu
