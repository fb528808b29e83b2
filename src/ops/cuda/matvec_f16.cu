#include "ops/cuda/matvec.cuh"
#include "ops/cuda/matvec_one.cuh"
#include "ops/cuda/matvec_stream.cuh"

namespace bz::ops::cuda {

template void launch_matvec<DType::kF16>(device::Stream&, const char*, const LinearParams&, const MatvecConfig&);
template void launch_matvec_one<DType::kF16>(device::Stream&, const char*, const LinearParams&);
template void launch_matvec_stream<DType::kF16>(device::Stream&, const char*, const LinearParams&, const StreamConfig&);

}  // namespace bz::ops::cuda
