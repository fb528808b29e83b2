// Products of many tokens by cuBLASLt (ops/cuda/split_linear.h), on the GPU against the CPU's reference and against
// float64. The scratch is poisoned, padding rows of x are NaN, and an eager run and a graph's replay agree to the bit.
#include "device/linears.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/products.h"

namespace bz::test {
namespace {

// The fewest tokens that take this path, of a small product.
int32_t min_tokens(DType dtype) {
  int32_t tokens = 1;
  while (!ops::cuda::prefer_split(dtype, 1, tokens, false)) ++tokens;
  return tokens;
}

// More nodes than our own kernels would be, so that the test cannot pass on those.
void matmul(DType dtype, const MatmulShape& s) {
  const LentScratch scratch(cuda_ops().matmul_scratch_bytes(s.tokens, s.k));
  run_matmul(dtype, s, {.scratch = &scratch, .graph = true, .min_nodes = 3});
}
void fused(DType dtype, const FusedShape& f, ops::RopeStyle style, int32_t min_nodes = 6) {
  const LentScratch scratch(cuda_ops().matmul_scratch_bytes(f.tokens, f.d));
  run_fused(dtype, f, style, {.scratch = &scratch, .graph = true, .min_nodes = min_nodes});
}

class SplitLinear : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    BZ_SKIP_WITHOUT_GPU();
    if (ops::cuda::cublas_lt() == nullptr) GTEST_SKIP() << "no cuBLASLt";
  }
};
class SplitLinearOfTwoTypes : public SplitLinear {};
class SplitLinearOfLargeWeights : public SplitLinear {};

TEST_P(SplitLinear, EqualsReference) {
  const int32_t least = min_tokens(GetParam());
  for (const MatmulShape& s :
       {MatmulShape{least, least, 576, 0, 576, true}, MatmulShape{least, least - 1, 64, 0, 64, false},
        MatmulShape{least + 1, least - 30, 65, 33, 96, true}, MatmulShape{least + 9, 1, 7, 0, 1536, false},
        MatmulShape{least, 0, 192, 64, 576, true}, MatmulShape{300, 271, 190, 50, 4096, false},
        MatmulShape{512, 511, 5, 3, 32, false}}) {
    matmul(GetParam(), s);
  }
}

TEST_P(SplitLinear, FusedFormsEqualTheirParts) {
  const int32_t least = min_tokens(GetParam());
  for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalfSplit}) {
    fused(GetParam(), {.tokens = least, .live = least}, style);
    fused(GetParam(), {.tokens = least + 3, .live = least - 40}, style);
    const FusedShape odd{.tokens = 272, .live = 270, .d = 96, .heads = 3, .kv_heads = 1, .head_dim = 64, .inter = 77};
    fused(GetParam(), odd, style);
  }
}

// More weight rows than a slice holds; heads of k on both sides of a cut.
TEST_P(SplitLinearOfTwoTypes, Slices) {
  const int32_t tokens = GetParam() == DType::kBF16 ? 2048 : 4096;
  matmul(GetParam(), {tokens, tokens - 5, 4100, 37, 32, true});
  const FusedShape wide{
      .tokens = tokens, .live = tokens - 3, .d = 32, .heads = 16, .kv_heads = 16, .head_dim = 128, .inter = 2100};
  fused(GetParam(), wide, ops::RopeStyle::kAdjacentPairs, 10);
}
INSTANTIATE_TEST_SUITE_P(Types, SplitLinearOfTwoTypes, testing::Values(DType::kBF16, DType::kQ4_1),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

// Of few tokens: weights that take the library from 4 tokens on, some of them just large enough.
TEST_P(SplitLinearOfLargeWeights, EqualsReference) {
  for (const MatmulShape& s : {MatmulShape{4, 4, 2048, 0, 2048, false}, MatmulShape{4, 0, 1999, 3, 2048, true},
                               MatmulShape{5, 4, 1000, 953, 2048, true}, MatmulShape{33, 32, 320, 0, 12544, true},
                               MatmulShape{63, 63, 320, 0, 12544, false}, MatmulShape{63, 1, 1999, 3, 2048, true}}) {
    matmul(GetParam(), s);
  }
}

TEST_P(SplitLinearOfLargeWeights, FusedFormsEqualTheirParts) {
  constexpr int32_t kNodes = 9;  // five of q, k and v, four of gate and up
  FusedShape f{.d = 2048, .heads = 24, .kv_heads = 4, .head_dim = 64, .inter = 1000};
  for (const auto& [tokens, live] : {std::pair{4, 4}, {5, 3}, {33, 33}, {63, 60}}) {
    f.tokens = tokens, f.live = live;
    fused(GetParam(), f, tokens % 2 == 0 ? ops::RopeStyle::kAdjacentPairs : ops::RopeStyle::kHalfSplit, kNodes);
  }
  f.tokens = f.live = 63;
  fused(GetParam(), f, ops::RopeStyle::kAdjacentPairs, kNodes);
}
INSTANTIATE_TEST_SUITE_P(Types, SplitLinearOfLargeWeights, testing::Values(DType::kBF16),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

// Weights to float64 by way of an exact product on the CPU: rows of the identity.
std::vector<double> rows_of(const ops::Weight& w) {
  const auto k = static_cast<size_t>(w.k), n = static_cast<size_t>(w.n);
  std::vector<float> identity(k * k, 0.0f), columns(k * n);
  for (size_t i = 0; i < k; ++i) identity[i * k + i] = 1;
  const kv::NumValidTokens all(w.k);
  device::cpu::ThreadPool pool(1);
  device::cpu::CpuStream stream(&pool);
  ops::MatmulParams p{ops::tensor_f32(identity.data(), w.k, w.k),
                      {{w, ops::tensor_f32(columns.data(), w.k, w.n)}},
                      1,
                      0,
                      nullptr,
                      0,
                      &all};
  cpu_ops().matmul(stream, p);
  return {columns.begin(), columns.end()};  // [k, n]
}

TEST_P(SplitLinear, RelativeErrorAgainstFloat64) {
  constexpr int32_t kK = 2048, kN = 64, kChecked = 32;
  const int32_t tokens = min_tokens(GetParam());
  Twin twin(size_t{32} << 20);
  const ops::Weight w = random_weight(twin, GetParam(), kN, kK);
  float* x = twin.floats(static_cast<size_t>(tokens * kK));
  const LentScratch scratch(cuda_ops().matmul_scratch_bytes(tokens, kK));
  scratch.poison();
  const auto upload = [](const void* data, size_t bytes) {
    device::Buffer b = std::move(gpu()->allocate(bytes).value());
    gpu()->copy_to_device(b.device(), data, bytes);
    return b;
  };
  const kv::NumValidTokens all(tokens);
  const device::Buffer there_w = upload(w.data, static_cast<size_t>(row_bytes(w.dtype, kK) * kN));
  const device::Buffer there_x = upload(x, static_cast<size_t>(tokens * kK) * 4);
  const device::Buffer there_all = upload(&all, sizeof(all));
  std::vector<float> got(static_cast<size_t>(tokens * kN));
  const device::Buffer there_out = upload(got.data(), got.size() * 4);
  const auto stream = gpu()->create_stream();
  ops::MatmulParams p{};
  p.x = ops::tensor_f32(there_x.device(), tokens, kK);
  p.parts[0] = {{there_w.device(), w.dtype, kN, kK}, ops::tensor_f32(there_out.device(), tokens, kN)};
  p.num_parts = 1;
  p.scratch = scratch.data(), p.scratch_bytes = scratch.bytes();
  p.num_valid = reinterpret_cast<const kv::NumValidTokens*>(there_all.device());
  cuda_ops().matmul(*stream, p);
  stream->synchronize();
  gpu()->copy_to_host(got.data(), there_out.device(), got.size() * 4);

  const std::vector<double> weights = rows_of(w);
  double errors = 0, squares = 0;
  for (size_t t = 0; t < kChecked; ++t) {
    for (size_t n = 0; n < kN; ++n) {
      double y = 0;
      for (size_t k = 0; k < kK; ++k) y += weights[k * kN + n] * double{x[t * kK + k]};
      errors += (got[t * kN + n] - y) * (got[t * kN + n] - y);
      squares += y * y;
    }
  }
  EXPECT_LT(std::sqrt(errors / squares), 1e-5);
}

TEST_P(SplitLinear, FewTokensAndNoScratchStayOnOurOwnKernels) {
  const int32_t least = min_tokens(GetParam());
  const LentScratch scratch(cuda_ops().matmul_scratch_bytes(least, 64));
  const auto nodes = [&](int32_t tokens, const LentScratch* lent) {
    const auto stream = gpu()->create_stream();
    const device::Buffer memory = std::move(gpu()->allocate(size_t{4} << 20).value());
    ops::MatmulParams p{};
    p.x = ops::tensor_f32(memory.device(), tokens, 64);
    p.parts[0] = {{memory.device(), GetParam(), 64, 64}, ops::tensor_f32(memory.device() + (2 << 20), tokens, 64)};
    p.num_parts = 1;
    p.num_valid = reinterpret_cast<const kv::NumValidTokens*>(memory.device());
    if (lent != nullptr) p.scratch = lent->data(), p.scratch_bytes = lent->bytes();
    cuda_ops().matmul(*stream, p);
    stream->synchronize();
    stream->begin_capture();
    cuda_ops().matmul(*stream, p);
    return stream->end_capture().value()->num_nodes();
  };
  EXPECT_EQ(nodes(least - 1, &scratch), 1u);
  EXPECT_EQ(nodes(least, nullptr), 1u);
  EXPECT_GT(nodes(least, &scratch), 1u);
}

TEST(Products, AShapeThatTheLibraryRefusesLeavesNothingBehind) {
  BZ_SKIP_WITHOUT_GPU();
  static const ops::cuda::CublasLt* const real = ops::cuda::cublas_lt();
  if (real == nullptr) GTEST_SKIP() << "no cuBLASLt";
  static int layouts = 0, made = 0;
  ops::cuda::CublasLt lt = *real;
  lt.create_layout = [](cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                        int64_t stride) {
    ++layouts, ++made;
    return real->create_layout(layout, type, rows, columns, stride);
  };
  lt.destroy_layout = [](cublasLtMatrixLayout_t layout) {
    --layouts;
    return real->destroy_layout(layout);
  };
  lt.choose = [](auto...) { return CUBLAS_STATUS_NOT_SUPPORTED; };
  const auto stream = gpu()->create_stream();
  ops::cuda::Products products(lt, nullptr, 0);
  EXPECT_FALSE(products.can(static_cast<device::cuda::CudaStream&>(*stream), {64, 64, 64, 64}, {}));
  EXPECT_GT(made, 0);
  EXPECT_EQ(layouts, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, SplitLinear,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ8_0),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

}  // namespace
}  // namespace bz::test
