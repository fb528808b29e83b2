#include "ops/cuda/attention_scalar.cuh"

namespace bz::ops::cuda {

void launch_attention_f32(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan) {
  switch (p.layer.head_dim) {
    case 16: return launch_attention_scalar<DType::kF32, 16>(stream, p, plan);
    case 32: return launch_attention_scalar<DType::kF32, 32>(stream, p, plan);
    case 64: return launch_attention_scalar<DType::kF32, 64>(stream, p, plan);
    default: return launch_attention_scalar<DType::kF32, 128>(stream, p, plan);
  }
}

}  // namespace bz::ops::cuda
