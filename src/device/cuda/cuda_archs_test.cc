#include "device/cuda/cuda_archs.h"

#include <gtest/gtest.h>

namespace bz::device::cuda {
namespace {

TEST(CudaArchs, WhichGpusABuildRunsOn) {
  EXPECT_TRUE(has_code_for("90a", 9, 0));
  EXPECT_FALSE(has_code_for("90a", 9, 1));
  EXPECT_FALSE(has_code_for("90a", 8, 0));
  EXPECT_FALSE(has_code_for("90a", 10, 0));
  EXPECT_TRUE(has_code_for("80", 8, 9));  // a later one of the same major version
  EXPECT_FALSE(has_code_for("89", 8, 0));
  EXPECT_TRUE(has_code_for("80,90a,100,120", 10, 3));
  EXPECT_TRUE(has_code_for("80,90a,100,120", 12, 0));
  EXPECT_FALSE(has_code_for("80,90a,100,120", 7, 5));
  EXPECT_FALSE(has_code_for("", 9, 0));
}

}  // namespace
}  // namespace bz::device::cuda
