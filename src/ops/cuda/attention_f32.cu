#include "ops/cuda/attention_scalar.cuh"

namespace bz::ops::cuda {

void launch_attention_f32(device::Stream& stream, const AttentionParams& p, const AttentionShare& share) {
  switch (p.layer.head_dim) {
    case 16: return launch_attention_scalar<DType::kF32, 16>(stream, p, share);
    case 32: return launch_attention_scalar<DType::kF32, 32>(stream, p, share);
    case 64: return launch_attention_scalar<DType::kF32, 64>(stream, p, share);
    default: return launch_attention_scalar<DType::kF32, 128>(stream, p, share);
  }
}

}  // namespace bz::ops::cuda
