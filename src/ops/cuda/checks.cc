#include "ops/cuda/checks.h"

#include "base/check.h"
#include "ops/cpu/shape_checks.h"

namespace bz::ops::cuda {
namespace {

constexpr int32_t kUnitBlock = 32;  // weights.cuh: K is walked in runs of this many

void check_weight(const Weight& w) {
  BZ_CHECK_MSG(supports_weight(w.dtype), "weight type {} is not supported on CUDA", dtype_info(w.dtype).name);
  BZ_CHECK_EQ(w.k % kUnitBlock, 0);
  BZ_CHECK_EQ(reinterpret_cast<uintptr_t>(w.data) % 16, 0u);
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

void check(const PrepareParams& p) {
  BZ_CHECK_LE(p.view.num_groups, kv::kMaxGroups);
  BZ_CHECK_LE(p.view.padded_rows, 8192);  // query_start lies in shared memory
  BZ_CHECK_EQ(p.view.padded_logits, p.logits_all_tokens ? p.view.padded_tokens : p.view.padded_rows);
}
void check(const EmbedParams& p) {
  cpu::check(p);
  check_weight(p.weight);
}
void check(const RmsNormParams& p) { cpu::check(p); }
void check(const MatmulParams& p) {
  cpu::check(p);
  for (int i = 0; i < p.num_parts; ++i) check_weight(p.parts[i].weight);
}
void check(const RopeTableParams& p) { cpu::check(p); }
void check(const RopeStoreParams& p) { cpu::check(p); }
void check(const AttentionParams& p) {
  cpu::check(p);
  const int32_t hd = p.layer.head_dim;
  BZ_CHECK_MSG(hd == 16 || hd == 32 || hd == 64 || hd == 128, "head dimension {}: CUDA attention has 16, 32, 64, 128", hd);
  BZ_CHECK_EQ(p.layer.k.entry_bytes % 16, 0);
  BZ_CHECK_EQ(p.layer.v.entry_bytes % 16, 0);
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
  cpu::check(r);
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
void check(const SiluMulParams& p) { cpu::check(p); }
void check(const GatherRowsParams& p) { cpu::check(p); }
void check(const SampleParams& p) { cpu::check(p); }

}  // namespace bz::ops::cuda
