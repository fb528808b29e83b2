// The CUDA launchers: shapes checked at their head, kernels enqueued through launch.h.
#pragma once

#include "device/stream.h"
#include "ops/params.h"

namespace bz::ops::cuda {

void copy_blocks(device::Stream& stream, const CopyBlocksParams& p);
void prepare(device::Stream& stream, const PrepareParams& p);
void embed(device::Stream& stream, const EmbedParams& p);
void rms_norm(device::Stream& stream, const RmsNormParams& p);
void matmul(device::Stream& stream, const MatmulParams& p);
void rope_table(device::Stream& stream, const RopeTableParams& p);
void rope_store(device::Stream& stream, const RopeStoreParams& p);
void attention(device::Stream& stream, const AttentionParams& p);
void norm_qkv(device::Stream& stream, const NormQkvParams& p);
void norm_gate_up(device::Stream& stream, const NormGateUpParams& p);
void prepare_products(device::Stream& stream, const ProductsParams& p);
void decode_logits(device::Stream& stream, const NormLogitsParams& p);
void silu_mul(device::Stream& stream, const SiluMulParams& p);
void gather_rows(device::Stream& stream, const GatherRowsParams& p);
void sample_greedy(device::Stream& stream, const SampleParams& p);
void sample_random(device::Stream& stream, const SampleParams& p);
void adjust_logits(device::Stream& stream, const AdjustLogitsParams& p);
void logprobs(device::Stream& stream, const LogprobsParams& p);
void draft(device::Stream& stream, const DraftParams& p);
void zero_rows(device::Stream& stream, const ZeroRowsParams& p);

// Of a batch-invariant table (PAD-9b): the same results to the bit whatever the number of tokens.
void matmul_invariant(device::Stream& stream, const MatmulParams& p);
void norm_qkv_invariant(device::Stream& stream, const NormQkvParams& p);
void norm_gate_up_invariant(device::Stream& stream, const NormGateUpParams& p);
void attention_invariant(device::Stream& stream, const AttentionParams& p);

size_t matmul_scratch_bytes(int32_t tokens, int32_t k);
size_t sample_scratch_bytes(int32_t rows, int32_t vocab);

}  // namespace bz::ops::cuda
