#include "ops/cuda/matvec.cuh"
#include "ops/cuda/matvec_one.cuh"

namespace bz::ops::cuda {

template void launch_matvec<DType::kBF16>(device::Stream&, const char*, const LinearParams&, const MatvecConfig&);
template void launch_matvec_one<DType::kBF16>(device::Stream&, const char*, const LinearParams&);

}  // namespace bz::ops::cuda
