#include "ops/cuda/attention.cuh"

namespace bz::ops::cuda {

template void launch_attention<DType::kBF16, 16>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kBF16, 32>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kBF16, 64>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kBF16, 128>(device::Stream&, const AttentionParams&, int);

}  // namespace bz::ops::cuda
