// The launcher of attention: shapes checked, the kernels and their instances chosen.
#include "ops/cuda/attention.h"

#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

// One translation unit per type of the cache.
void launch_attention_f32(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan);
void launch_attention_f16(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan);
void launch_attention_bf16(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan);
template <DType T>
void launch_attention_prefill(device::Stream& stream, const AttentionParams& p);

namespace {

bool can_prefill(const KvLayer& layer) {
  return (layer.dtype == DType::kBF16 || layer.dtype == DType::kF16) && (layer.head_dim == 64 || layer.head_dim == 128);
}

void run(device::Stream& stream, const AttentionParams& p, AttentionPlan plan) {
  if (plan.prefill && p.layer.dtype == DType::kBF16) launch_attention_prefill<DType::kBF16>(stream, p);
  if (plan.prefill && p.layer.dtype == DType::kF16) launch_attention_prefill<DType::kF16>(stream, p);
  plan.cluster = cluster_or_one(stream, plan.cluster);
  switch (p.layer.dtype) {
    case DType::kF32: return launch_attention_f32(stream, p, plan);
    case DType::kF16: return launch_attention_f16(stream, p, plan);
    default: return launch_attention_bf16(stream, p, plan);
  }
}

void run(device::Stream& stream, const AttentionParams& p, bool invariant) {
  check(p);
  run(stream, p,
      plan_attention(p.q.rows, p.view.padded_rows, p.layer.num_kv_heads, p.view.groups[p.group].view.max_position,
                     limits_of(stream), can_prefill(p.layer), invariant));
}

}  // namespace

void attention_in_clusters(device::Stream& stream, const AttentionParams& p, int cluster) {
  check(p);
  run(stream, p, AttentionPlan{.cluster = cluster});
}

void attention_in_ctas(device::Stream& stream, const AttentionParams& p, int32_t ctas, bool prefill) {
  check(p);
  run(stream, p, {.prefill = prefill && can_prefill(p.layer), .many_ctas = ctas});
}

void attention(device::Stream& stream, const AttentionParams& p) { run(stream, p, false); }
void attention_invariant(device::Stream& stream, const AttentionParams& p) { run(stream, p, true); }

}  // namespace bz::ops::cuda
