// Kernels that are not ours, on the GPU.
#include "support/foreign_cases.h"

#include "device/foreign_kernel.h"
#include "device/twin.h"

namespace bz::test {
namespace {

TEST(Foreign, FaultsThatCannotBeRepairedAreRefused) {
  BZ_SKIP_WITHOUT_GPU();
  check_foreign_cases(*gpu(), cuda_ops(), launch_test_kernel);
}

}  // namespace
}  // namespace bz::test
