#include "ops/shape_checks.h"

#include "base/check.h"

namespace bz::ops {
namespace {

// A readable f32 matrix [rows, cols].
void check_f32(const TensorRef& t, int32_t rows, int32_t cols) {
  BZ_CHECK(t.data != nullptr);
  BZ_CHECK(t.dtype == DType::kF32);
  BZ_CHECK_EQ(t.rows, rows);
  BZ_CHECK_EQ(t.cols, cols);
  BZ_CHECK_GE(t.row_stride, cols);
}

void check_weight(const Weight& w, int32_t k) {
  BZ_CHECK(w.data != nullptr);
  BZ_CHECK_MSG(supports_weight(w.dtype), "weight type {} is not supported", dtype_info(w.dtype).name);
  BZ_CHECK_GT(w.n, 0);
  BZ_CHECK_EQ(w.k, k);
  BZ_CHECK_EQ(k % dtype_info(w.dtype).block_elems, 0);
}

void check_layer(const KvLayer& layer) {
  BZ_CHECK(layer.base != nullptr);
  BZ_CHECK_MSG(supports_kv(layer.dtype), "cache type {} is not supported", dtype_info(layer.dtype).name);
  BZ_CHECK_GT(layer.num_kv_heads, 0);
  BZ_CHECK_GT(layer.head_dim, 0);
  BZ_CHECK_LE(layer.head_dim, kMaxHeadDim);
  const int64_t bytes = row_bytes(layer.dtype, int64_t{layer.num_kv_heads} * layer.head_dim);
  BZ_CHECK_GE(layer.k.entry_bytes, bytes);
  BZ_CHECK_GE(layer.v.entry_bytes, bytes);
}

}  // namespace

bool supports_weight(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0: return true;
    default: return false;
  }
}

bool supports_kv(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32; }

bool supports_heads(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim) {
  return head_dim > 0 && head_dim <= kMaxHeadDim && head_dim % 2 == 0 && num_heads % num_kv_heads == 0 &&
         num_heads / num_kv_heads <= kMaxHeadsPerKv;
}

void check_shapes(const CopyBlocksParams& p) {
  BZ_CHECK(p.base != nullptr);
  BZ_CHECK_GE(p.num_blocks, 2);
  BZ_CHECK_GT(p.block_stride, 0);
  BZ_CHECK_EQ(p.block_stride % 128, 0);  // KV-5
}

void check_shapes(const EmbedParams& p) {
  check_f32(p.out, p.out.rows, p.out.cols);
  check_weight(p.weight, p.out.cols);
}

void check_shapes(const RmsNormParams& p) {
  check_f32(p.x, p.x.rows, p.x.cols);
  check_f32(p.out, p.x.rows, p.x.cols);
  BZ_CHECK(p.weight != nullptr);
}

void check_shapes(const MatmulParams& p) {
  check_f32(p.x, p.x.rows, p.x.cols);
  BZ_CHECK_GE(p.num_parts, 1);
  BZ_CHECK_LE(p.num_parts, MatmulParams::kMaxParts);
  for (int i = 0; i < p.num_parts; ++i) {
    check_weight(p.parts[i].weight, p.x.cols);
    check_f32(p.parts[i].out, p.x.rows, p.parts[i].weight.n);
  }
}

void check_shapes(const RopeTableParams& p) {
  check_f32(p.cos_sin, p.cos_sin.rows, p.cos_sin.cols);
  BZ_CHECK_EQ(p.cos_sin.cols % 2, 0);
}

void check_shapes(const RopeStoreParams& p) {
  check_layer(p.layer);
  BZ_CHECK_EQ(p.layer.head_dim % 2, 0);
  BZ_CHECK_EQ(p.q.cols % p.layer.head_dim, 0);
  check_f32(p.q, p.q.rows, p.q.cols);
  check_f32(p.k, p.q.rows, p.layer.num_kv_heads * p.layer.head_dim);
  check_f32(p.v, p.q.rows, p.layer.num_kv_heads * p.layer.head_dim);
  check_f32(p.cos_sin, p.q.rows, p.layer.head_dim);
}

void check_shapes(const AttentionParams& p) {
  check_layer(p.layer);
  BZ_CHECK_EQ(p.num_heads % p.layer.num_kv_heads, 0);
  BZ_CHECK_LE(p.num_heads / p.layer.num_kv_heads, kMaxHeadsPerKv);
  check_f32(p.q, p.view.padded_tokens, p.num_heads * p.layer.head_dim);
  check_f32(p.out, p.view.padded_tokens, p.num_heads * p.layer.head_dim);
  BZ_CHECK_GE(p.group, 0);
  BZ_CHECK_LT(p.group, p.view.num_groups);
  BZ_CHECK_EQ(p.view.groups[p.group].view.block_size, p.layer.k.block_size);
  BZ_CHECK_EQ(p.view.groups[p.group].view.block_size, p.layer.v.block_size);
}

void check_shapes(const SiluMulParams& p) {
  check_f32(p.gate, p.gate.rows, p.gate.cols);
  check_f32(p.up, p.gate.rows, p.gate.cols);
  check_f32(p.out, p.gate.rows, p.gate.cols);
}

void check_shapes(const GatherRowsParams& p) {
  check_f32(p.x, p.x.rows, p.x.cols);
  check_f32(p.out, p.out.rows, p.x.cols);
}

void check_shapes(const AdjustLogitsParams& p) {
  check_f32(p.logits, p.view.padded_logits, p.logits.cols);
  check_f32(p.adjusted, p.view.padded_rows, p.logits.cols);
  BZ_CHECK(p.counts != nullptr);
}

void check_shapes(const SampleParams& p) {
  check_f32(p.logits, p.view.padded_logits, p.logits.cols);
  if (p.adjusted.data != nullptr) check_f32(p.adjusted, p.view.padded_rows, p.logits.cols);
}

void check_shapes(const LogprobsParams& p) { check_f32(p.logits, p.view.padded_logits, p.logits.cols); }

void check_shapes(const DraftParams& p) {
  BZ_CHECK(p.max_tokens >= 1 && p.max_tokens <= kMaxDraftTokens);
  BZ_CHECK_EQ(p.view.samples_per_row, 1 + p.max_tokens);
}

void check_shapes(const ZeroRowsParams& p) {
  BZ_CHECK(p.out.data != nullptr);
  BZ_CHECK_GT(p.out.rows, 0);
  BZ_CHECK_EQ(dtype_info(p.out.dtype).block_elems, 1);
  BZ_CHECK_GE(p.out.row_stride, p.out.cols);
  BZ_CHECK_EQ(reinterpret_cast<uintptr_t>(p.out.data) % 16, 0u);
  BZ_CHECK_EQ(row_bytes(p.out.dtype, p.out.cols) % 16, 0);
  BZ_CHECK_EQ(row_bytes(p.out.dtype, p.out.row_stride) % 16, 0);
  BZ_CHECK(p.seq_len != nullptr);
}

}  // namespace bz::ops
