#include "ops/cuda/cuda_ops.h"

#include "ops/cuda/checks.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/decode_logits.h"
#include "ops/cuda/kernels.h"
#include "ops/shape_checks.h"

namespace bz::ops::cuda {

namespace {

constexpr OpTable kDefault = {
    .isa = "cuda",
    .copy_blocks = copy_blocks,
    .prepare = prepare,
    .embed = embed,
    .rms_norm = rms_norm,
    .matmul = matmul,
    .rope_table = rope_table,
    .rope_store = rope_store,
    .attention = attention,
    .silu_mul = silu_mul,
    .gather_rows = gather_rows,
    .sample_greedy = sample_greedy,
    .sample_random = sample_random,
    .adjust_logits = adjust_logits,
    .logprobs = logprobs,
    .draft = draft,
    .zero_rows = zero_rows,
    .norm_qkv = norm_qkv,
    .norm_gate_up = norm_gate_up,
    .norm_logits = decode_logits,
    .supports_norm_logits = supports_decode_logits,
    .prepare_products = prepare_products,
    .matmul_scratch_bytes = matmul_scratch_bytes,
    .attention_scratch_bytes = [](int32_t, int32_t, int32_t) { return size_t{0}; },
    .sample_scratch_bytes = sample_scratch_bytes,
    .supports_weight = supports_weight,
    .weight_row_unit = kWeightRowUnit,
    .supports_heads = supports_heads,
};

constexpr OpTable batch_invariant_table() {
  OpTable t = kDefault;
  t.isa = "cuda-batch-invariant";
  t.matmul = matmul_invariant;
  t.attention = attention_invariant;
  t.norm_qkv = norm_qkv_invariant;
  t.norm_gate_up = norm_gate_up_invariant;
  t.prepare_products = nullptr;
  t.matmul_scratch_bytes = [](int32_t, int32_t) { return size_t{0}; };
  t.norm_logits = nullptr;  // one row alone would have sums of its own
  t.supports_norm_logits = nullptr;
  return t;
}
constexpr OpTable kBatchInvariant = batch_invariant_table();

}  // namespace

Result<const OpTable*> table(bool batch_invariant) {
  if (batch_invariant) return &kBatchInvariant;
  BZ_TRY(find_cublas_lt().status());
  return &kDefault;
}

}  // namespace bz::ops::cuda
