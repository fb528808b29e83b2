// The launcher of attention: shapes checked, the instance chosen.
#include "ops/cuda/attention.h"
#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"

namespace bz::ops::cuda {

template <DType T, int HD>
void launch_attention(device::Stream& stream, const AttentionParams& p, int cluster);

namespace {

template <DType T>
void run(device::Stream& stream, const AttentionParams& p, int cluster) {
  switch (p.layer.head_dim) {
    case 16: return launch_attention<T, 16>(stream, p, cluster);
    case 32: return launch_attention<T, 32>(stream, p, cluster);
    case 64: return launch_attention<T, 64>(stream, p, cluster);
    default: return launch_attention<T, 128>(stream, p, cluster);
  }
}

void run(device::Stream& stream, const AttentionParams& p, bool invariant) {
  check(p);
  const int cluster =
      choose_attention_cluster(p.q.rows, p.layer.num_kv_heads, p.view.groups[p.group].view.max_position, invariant);
  switch (p.layer.dtype) {
    case DType::kF32: return run<DType::kF32>(stream, p, cluster);
    case DType::kF16: return run<DType::kF16>(stream, p, cluster);
    default: return run<DType::kBF16>(stream, p, cluster);
  }
}

}  // namespace

void attention(device::Stream& stream, const AttentionParams& p) { run(stream, p, false); }
void attention_invariant(device::Stream& stream, const AttentionParams& p) { run(stream, p, true); }

}  // namespace bz::ops::cuda
