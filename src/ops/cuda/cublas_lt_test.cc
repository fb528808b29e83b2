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

}  // namespace
}  // namespace bz::ops::cuda
