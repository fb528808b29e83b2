#include "ops/cuda/attention_scalar.cuh"

namespace bz::ops::cuda {

void launch_attention_f32(device::Stream& stream, const AttentionParams& p, int cluster) {
  switch (p.layer.head_dim) {
    case 16: return launch_attention_scalar<DType::kF32, 16>(stream, p, cluster);
    case 32: return launch_attention_scalar<DType::kF32, 32>(stream, p, cluster);
    case 64: return launch_attention_scalar<DType::kF32, 64>(stream, p, cluster);
    default: return launch_attention_scalar<DType::kF32, 128>(stream, p, cluster);
  }
}

}  // namespace bz::ops::cuda
