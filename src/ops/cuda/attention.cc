// The launcher of attention: shapes checked, the instance chosen.
#include "ops/cuda/attention.h"

#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

// One translation unit per type of the cache.
void launch_attention_f32(device::Stream& stream, const AttentionParams& p, int cluster);
void launch_attention_f16(device::Stream& stream, const AttentionParams& p, int cluster);
void launch_attention_bf16(device::Stream& stream, const AttentionParams& p, int cluster);

void attention_in_clusters(device::Stream& stream, const AttentionParams& p, int cluster) {
  check(p);
  switch (p.layer.dtype) {
    case DType::kF32: return launch_attention_f32(stream, p, cluster);
    case DType::kF16: return launch_attention_f16(stream, p, cluster);
    default: return launch_attention_bf16(stream, p, cluster);
  }
}

namespace {

int cluster_of(device::Stream& stream, const AttentionParams& p, bool invariant) {
  return cluster_or_one(stream, choose_attention_cluster(p.q.rows, p.layer.num_kv_heads,
                                                         p.view.groups[p.group].view.max_position, invariant));
}

}  // namespace

void attention(device::Stream& stream, const AttentionParams& p) {
  attention_in_clusters(stream, p, cluster_of(stream, p, false));
}
void attention_invariant(device::Stream& stream, const AttentionParams& p) {
  attention_in_clusters(stream, p, cluster_of(stream, p, true));
}

}  // namespace bz::ops::cuda
