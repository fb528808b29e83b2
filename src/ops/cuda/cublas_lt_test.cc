#include "ops/cuda/cublas_lt.h"

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

namespace bz::ops::cuda {
namespace {

// What a process finds that was told this, as its exit code and a line.
void find_and_exit(const char* wanted) {
  setenv("BLOCKZERO_CUBLASLT", wanted, 1);
  const auto found = find_cublas_lt();
  if (!found.ok()) {
    std::fprintf(stderr, "%s\n", found.status().message().c_str());
    std::exit(found.status().exit_code());
  }
  std::fprintf(stderr, "%s\n", *found == nullptr && cublas_lt() == nullptr ? "none" : "found");
  std::exit(0);
}

TEST(CublasLtDeathTest, WhatIsNamedIsTakenOrRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own: it looks once
  EXPECT_EXIT(find_and_exit("none"), testing::ExitedWithCode(0), "none");
  EXPECT_EXIT(find_and_exit("/nowhere/lib.so"), testing::ExitedWithCode(2),
              "BLOCKZERO_CUBLASLT=/nowhere/lib.so: not a libcublasLt.so.[0-9]+; name that library's file, or none");
  EXPECT_EXIT(find_and_exit("libc.so.6"), testing::ExitedWithCode(2), "BLOCKZERO_CUBLASLT=libc.so.6: not a lib");
}

TEST(MatrixLayout, IsGivenBackOnce) {
  static int made = 0, given_back = 0;
  static cublasLtMatrixLayoutOpaque_t memory;
  CublasLt lt{};
  lt.create_layout = [](cublasLtMatrixLayout_t* layout, cudaDataType, uint64_t, uint64_t, int64_t) {
    ++made;
    *layout = &memory;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.destroy_layout = [](cublasLtMatrixLayout_t) {
    ++given_back;
    return CUBLAS_STATUS_SUCCESS;
  };
  {
    MatrixLayout layout = make_layout(lt, CUDA_R_16BF, 1, 2, 3);
    const MatrixLayout kept = std::move(layout);  // as a plan that is moved into its map
    EXPECT_EQ(kept.get(), &memory);
    EXPECT_EQ(given_back, 0);
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(given_back, 1);
}

}  // namespace
}  // namespace bz::ops::cuda
