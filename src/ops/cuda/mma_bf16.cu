#include "ops/cuda/matmul_mma.cuh"

namespace bz::ops::cuda {

template void launch_mma<DType::kBF16>(device::Stream&, const char*, const LinearParams&, const MmaConfig&);

}  // namespace bz::ops::cuda
