#include "ops/cuda/matvec.cuh"

namespace bz::ops::cuda {

template void launch_matvec<DType::kBF16>(device::Stream&, const char*, const LinearParams&, const MatvecConfig&);

}  // namespace bz::ops::cuda
