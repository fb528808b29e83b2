#include "ops/cuda/checks.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/decode_logits.h"
#include "ops/shape_checks.h"

namespace bz::ops::cuda {
namespace {

void check_weight(const Weight& w) {
  BZ_CHECK_MSG(supports_weight(w.dtype), "weight type {} is not supported on CUDA", dtype_info(w.dtype).name);
  BZ_CHECK_EQ(w.k % kWeightRowUnit, 0);
  BZ_CHECK_EQ(reinterpret_cast<uintptr_t>(w.data) % 16, 0u);
}

}  // namespace

bool supports_heads(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim) {
  const bool compiled = head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
  return compiled && ops::supports_heads(num_heads, num_kv_heads, head_dim);
}

void check(const PrepareParams& p) {
  BZ_CHECK_LE(p.view.num_groups, kv::kMaxGroups);
  BZ_CHECK_LE(p.view.padded_rows, 8192);  // query_start lies in shared memory
}
void check(const CopyBlocksParams& p) { check_shapes(p); }
void check(const EmbedParams& p) {
  check_shapes(p);
  check_weight(p.weight);
}
void check(const RmsNormParams& p) { check_shapes(p); }
void check(const MatmulParams& p) {
  check_shapes(p);
  for (int i = 0; i < p.num_parts; ++i) check_weight(p.parts[i].weight);
}
void check(const RopeTableParams& p) { check_shapes(p); }
void check(const RopeStoreParams& p) { check_shapes(p); }
void check(const AttentionParams& p) {
  check_shapes(p);
  BZ_CHECK(supports_heads(p.num_heads, p.layer.num_kv_heads, p.layer.head_dim));
  BZ_CHECK_EQ(p.layer.k.entry_bytes % 16, 0);
  BZ_CHECK_EQ(p.layer.v.entry_bytes % 16, 0);
  BZ_CHECK_LE(std::max(p.layer.k.entry_bytes, p.layer.v.entry_bytes) * p.layer.k.block_size, INT32_MAX);  // of a page
}
void check(const NormQkvParams& p) {
  MatmulParams m{};
  m.x = p.x;
  m.parts[0] = {p.q, p.q_out};
  m.num_parts = 1;
  check(m);
  RopeStoreParams r{};
  r.q = p.q_out, r.cos_sin = p.cos_sin, r.layer = p.layer;
  r.k = r.v = TensorRef{p.q_out.data, DType::kF32, p.x.rows, p.layer.num_kv_heads * p.layer.head_dim, int64_t{1} << 30};
  check_shapes(r);
  for (const Weight& w : {p.k, p.v}) {
    check_weight(w);
    BZ_CHECK_EQ(w.n, r.k.cols);
    BZ_CHECK_EQ(w.k, p.x.cols);
    BZ_CHECK(w.dtype == p.q.dtype);
  }
}
void check(const NormGateUpParams& p) {
  MatmulParams m{};
  m.x = p.x;
  m.parts[0] = {p.gate, p.out};
  m.parts[1] = {p.up, p.out};
  m.num_parts = 2;
  check(m);
  BZ_CHECK(p.gate.dtype == p.up.dtype);
}
void check(const NormLogitsParams& p) {
  check_weight(p.weight);
  BZ_CHECK(supports_decode_logits(p));
  BZ_CHECK_EQ(p.weight.k, p.x.cols);
  BZ_CHECK_EQ(p.weight.n, p.out.cols);
}
void check(const SiluMulParams& p) { check_shapes(p); }
void check(const GatherRowsParams& p) { check_shapes(p); }
void check(const AdjustLogitsParams& p) { check_shapes(p); }
void check(const SampleParams& p) { check_shapes(p); }
void check(const LogprobsParams& p) { check_shapes(p); }
void check(const DraftParams& p) { check_shapes(p); }
void check_greedy(const SampleParams& p) {
  check_shapes(p);
  BZ_CHECK(p.adjusted.data == nullptr);  // the random kernel takes those, at any temperature
}

}  // namespace bz::ops::cuda
