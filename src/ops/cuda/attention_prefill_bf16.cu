#include "ops/cuda/attention_prefill.cuh"

namespace bz::ops::cuda {

template void launch_attention_prefill<DType::kBF16>(device::Stream& stream, const AttentionParams& p);

}  // namespace bz::ops::cuda
