#include "ops/cuda/attention.cuh"

namespace bz::ops::cuda {

template void launch_attention<DType::kF32, 16>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF32, 32>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF32, 64>(device::Stream&, const AttentionParams&, int);
template void launch_attention<DType::kF32, 128>(device::Stream&, const AttentionParams&, int);

}  // namespace bz::ops::cuda
