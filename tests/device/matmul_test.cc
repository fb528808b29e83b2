// Matrix products of every weight type on our own kernels, on the GPU against the CPU's reference.
#include <utility>

#include "device/linears.h"

namespace bz::test {
namespace {

class Matmul : public testing::TestWithParam<DType> {};

TEST_P(Matmul, EqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (const MatmulShape& s :
       {MatmulShape{1, 1, 64, 0, 64, false}, MatmulShape{1, 1, 960, 0, 576, false}, MatmulShape{1, 0, 33, 7, 96, false},
        MatmulShape{1, 1, 576, 0, 1536, true}, MatmulShape{2, 1, 40, 24, 576, false},
        MatmulShape{3, 3, 65, 0, 4096, true}, MatmulShape{1, 1, 2200, 129, 1792, false},
        MatmulShape{1, 1, 70, 0, 14336, true}, MatmulShape{4, 3, 148, 1, 2304, true},
        MatmulShape{2, 2, 30, 0, 14336, false}, MatmulShape{3, 2, 40, 0, 14336, true},
        MatmulShape{8, 5, 192, 64, 576, false}, MatmulShape{9, 8, 192, 0, 1536, true},
        MatmulShape{17, 11, 50, 14, 576, false}, MatmulShape{64, 64, 192, 64, 576, false},
        MatmulShape{64, 1, 576, 0, 1536, true}, MatmulShape{130, 129, 320, 0, 576, false}}) {
    run_matmul(GetParam(), s, {});
    run_matmul(GetParam(), s, {.batch_invariant = true});
  }
}

TEST_P(Matmul, FusedFormsEqualTheirParts) {
  BZ_SKIP_WITHOUT_GPU();
  for (const auto& [tokens, live] : {std::pair{1, 1}, {4, 3}, {12, 9}, {70, 66}}) {
    for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalfSplit}) {
      run_fused(GetParam(), {tokens, live}, style, {});
      run_fused(GetParam(), {tokens, live}, style, {.batch_invariant = true});
    }
  }
}

// Rows of several chunks, behind a norm; more pairs of rows than warps.
TEST_P(Matmul, FusedFormsOfLongRowsEqualTheirParts) {
  BZ_SKIP_WITHOUT_GPU();
  for (const FusedShape& f :
       {FusedShape{.tokens = 1, .live = 1, .d = 2304}, FusedShape{.tokens = 2, .live = 1, .d = 2304},
        FusedShape{.tokens = 4, .live = 3, .d = 2304, .inter = 1100}}) {
    run_fused(GetParam(), f, ops::RopeStyle::kHalfSplit, {});
  }
}

// A row of x is more than a cta's shared memory holds, on any GPU.
TEST_P(Matmul, RowsLongerThanSharedMemoryEqualReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (const MatmulShape& s : {MatmulShape{1, 1, 30, 7, 61440, true}, MatmulShape{2, 1, 24, 0, 61440, false},
                               MatmulShape{3, 3, 17, 0, 98304, false}, MatmulShape{4, 3, 24, 3, 61440, true}}) {
    run_matmul(GetParam(), s, {});
  }
  FusedShape f{.d = 61440, .heads = 2, .kv_heads = 1, .head_dim = 16, .inter = 10};
  for (const int32_t tokens : {1, 4}) {
    f.tokens = f.live = tokens;
    run_fused(GetParam(), f, ops::RopeStyle::kAdjacentPairs, {});
  }
}

// The only path for a few tokens on GPUs without bulk copies (sm_80, sm_89, sm_120), which choose it for rows of any
// length: rows in one step and in many, 4 and 8 warps a cta, more pairs of rows than warps, tokens of two ctas.
TEST_P(Matmul, MatvecEqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (const MatmulShape& s :
       {MatmulShape{1, 1, 40, 24, 576, false}, MatmulShape{1, 1, 33, 7, 4096, true}, MatmulShape{1, 0, 30, 0, 96, true},
        MatmulShape{1, 1, 70, 0, 14336, true}, MatmulShape{1, 1, 4300, 129, 64, false},
        MatmulShape{2, 2, 65, 0, 4096, true}, MatmulShape{2, 1, 30, 0, 14336, false},
        MatmulShape{3, 2, 148, 1, 2304, false}, MatmulShape{4, 4, 65, 33, 4096, true},
        MatmulShape{4, 1, 40, 0, 14336, false}, MatmulShape{5, 5, 192, 64, 576, true},
        MatmulShape{6, 3, 50, 14, 1792, false}, MatmulShape{7, 7, 192, 0, 1536, true},
        MatmulShape{8, 7, 4300, 0, 64, true}, MatmulShape{8, 5, 65, 33, 2304, false}}) {
    run_matmul(GetParam(), s, {.matvec = true});
  }
}

TEST_P(Matmul, MatvecOfFusedFormsEqualsTheirParts) {
  BZ_SKIP_WITHOUT_GPU();
  for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalfSplit}) {
    for (const auto& [tokens, live] : {std::pair{1, 1}, {2, 1}, {4, 4}, {8, 6}}) {
      run_fused(GetParam(), {tokens, live}, style, {.matvec = true});
    }
    run_fused(GetParam(), {.tokens = 1, .live = 1, .d = 2304}, style, {.matvec = true});
    run_fused(GetParam(), {.tokens = 3, .live = 3, .d = 2304, .inter = 1100}, style, {.matvec = true});
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Matmul,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ8_0),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

}  // namespace
}  // namespace bz::test
