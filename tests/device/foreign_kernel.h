// A kernel that is not ours, on the GPU: launched as its authors would, with no regard for our launch wrapper.
#pragma once

#include "device/stream.h"
#include "ops/foreign/test_kernel.h"

namespace bz::test {

void launch_test_kernel(device::Stream& stream, const ops::foreign::TestKernelParams& p);

}  // namespace bz::test
