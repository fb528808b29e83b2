#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/attention_scalar.cuh"

namespace bz::ops::cuda {

void launch_attention_bf16(device::Stream& stream, const AttentionParams& p, const AttentionShare& share) {
  switch (p.layer.head_dim) {
    case 16: return launch_attention_scalar<DType::kBF16, 16>(stream, p, share);
    case 32: return launch_attention_scalar<DType::kBF16, 32>(stream, p, share);
    case 64: return launch_attention_tile<MmaTile<DType::kBF16, 64>>(stream, p, share);
    default: return launch_attention_tile<MmaTile<DType::kBF16, 128>>(stream, p, share);
  }
}

}  // namespace bz::ops::cuda
