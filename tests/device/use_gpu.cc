// Makes the tests of other folders that this program holds run on the GPU: before they list their instruction sets.
#include <cstdlib>

namespace {

struct UseGpu {
  UseGpu() { setenv("BLOCKZERO_TEST_DEVICE", "cuda:0", 0); }
};
__attribute__((init_priority(101))) const UseGpu g_use_gpu;

}  // namespace
