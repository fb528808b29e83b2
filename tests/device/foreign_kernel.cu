#include "device/foreign_kernel.h"

#include "device/cuda/cuda_stream.h"

namespace bz::test {

__global__ void test_kernel(ops::foreign::TestKernelParams p) {
  ops::foreign::test_kernel_row(p, static_cast<int32_t>(threadIdx.x));
}

void launch_test_kernel(device::Stream& stream, const ops::foreign::TestKernelParams& p) {
  const auto handle = static_cast<device::cuda::CudaStream&>(stream).handle();
  test_kernel<<<1, static_cast<unsigned>(p.out.rows), 0, handle>>>(p);
  BZ_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bz::test
