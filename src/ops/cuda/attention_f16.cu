#include "ops/cuda/attention.cuh"

namespace bz::ops::cuda {

template void launch_attention<DType::kF16, 16>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF16, 32>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF16, 64>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF16, 128>(device::Stream&, const AttentionParams&, int);

}  // namespace bz::ops::cuda
