#include <gmock/gmock.h>

#include "ops/cuda/products.h"
#include "ops/cuda/split_linear.h"

namespace bz::ops::cuda {
namespace {

LinearParams linear(Epilogue epilogue, int32_t tokens, int32_t k, std::initializer_list<int32_t> n) {
  LinearParams p;
  p.epilogue = epilogue, p.tokens = tokens, p.k = k;
  static std::byte weights[1];
  for (const int32_t rows : n) p.parts[p.num_parts++] = {weights, rows, nullptr, rows};
  p.layer.head_dim = 128;
  return p;
}

// Every row of every part once, in order, in slices that keep to their bounds.
TEST(Slices, CoverEveryRowOnce) {
  for (const LinearParams& p :
       {linear(Epilogue::kStore, 2048, 576, {576}), linear(Epilogue::kStore, 4096, 64, {9001, 35, 1}),
        linear(Epilogue::kStore, 256, 14336, {4096}), linear(Epilogue::kStore, 512, 576, {49152}),
        linear(Epilogue::kStore, 100000, 32, {1000}), linear(Epilogue::kSiluMul, 2048, 4096, {14336, 14336}),
        linear(Epilogue::kSiluMul, 8192, 64, {8197, 8197}),
        linear(Epilogue::kRopeStore, 8192, 4096, {4096, 1024, 1024}),
        linear(Epilogue::kRopeStore, 8192, 64, {2048, 2048, 2048})}) {
    for (const DType w : {DType::kBF16, DType::kQ4_1}) {
      const int32_t max_rows = slice_rows(p, w);
      const SplitForm form = split_form(w);
      const SplitScratch at = split_scratch(nullptr, p.tokens, p.k);
      const auto y_bytes = static_cast<std::byte*>(at.workspace) - reinterpret_cast<std::byte*>(at.y);
      const auto weight_bytes = reinterpret_cast<std::byte*>(at.y) - at.weights;
      int32_t done[3] = {};
      for (LinearSlice s; next_slice(p, max_rows, s);) {
        for (int i = 0; i < p.num_parts; ++i) {
          if (s.rows[i] == 0) continue;
          EXPECT_EQ(s.first[i], done[i]);
          EXPECT_TRUE(p.epilogue != Epilogue::kRopeStore || s.first[i] % p.layer.head_dim == 0);
          EXPECT_TRUE(p.epilogue != Epilogue::kSiluMul || s.rows[i] == s.rows[1 - i]);
          EXPECT_TRUE(p.epilogue == Epilogue::kSiluMul || i == 0 || done[i - 1] == p.parts[i - 1].n);  // in order
          done[i] += s.rows[i];
        }
        const SliceColumns c = slice_columns(take_slice(p, w, s));
        EXPECT_LE(c.total, max_rows);
        EXPECT_LE(int64_t{4} * form.stacked * p.tokens * c.total, y_bytes);
        EXPECT_TRUE(form.terms == 1 || int64_t{2} * form.terms * p.k * c.total <= weight_bytes);
      }
      for (int i = 0; i < p.num_parts; ++i) EXPECT_EQ(done[i], p.parts[i].n);
    }
  }
}

TEST(Slices, ASliceIsALinearOfItsRows) {
  LinearParams p = linear(Epilogue::kRopeStore, 8192, 64, {2048, 2048, 2048});
  static std::byte weights[256 * 64 * 2 + 1];
  static float out[128 + 1];
  for (LinearPart& part : p.parts) part.weight = weights;
  p.parts[0].out = out;
  p.layer.dtype = DType::kBF16;
  p.layer.k.offset = 1000, p.layer.v.offset = 5000;
  const LinearParams s = take_slice(p, DType::kBF16, {{128, 256, 0}, {256, 128, 0}});
  EXPECT_EQ(s.parts[0].weight - weights, 128 * 64 * 2);
  EXPECT_EQ(s.parts[1].weight - weights, 256 * 64 * 2);
  EXPECT_EQ(s.parts[0].out - out, 128);
  EXPECT_EQ(s.parts[1].out, nullptr);
  EXPECT_EQ(s.layer.k.offset, 1000 + 256 * 2);
  EXPECT_EQ(s.layer.v.offset, 5000);
  EXPECT_EQ(s.num_pairs, (256 + 128) / 2);
}

TEST(SliceColumns, PartsBeginAtSixteenBytes) {
  const SliceColumns c = slice_columns(linear(Epilogue::kStore, 64, 64, {65, 33, 7}));
  EXPECT_THAT(c.begin, testing::ElementsAre(0, 68, 104));
  EXPECT_EQ(c.total, 112);
}

TEST(SplitScratch, IsBoundedAndGrowsWithItsArguments) {
  // A smaller step runs in what was reserved for the largest.
  EXPECT_LE(split_scratch_bytes(64, 576), split_scratch_bytes(2048, 576));
  EXPECT_LE(split_scratch_bytes(2048, 576), split_scratch_bytes(2048, 14336));
  EXPECT_LT(split_scratch_bytes(2048, 4096), size_t{300} << 20);
  // From any address it lies inside, in order, and aligned.
  alignas(256) static std::byte base[256];
  for (const size_t shift : {0, 1, 128, 255}) {
    const SplitScratch s = split_scratch(base + shift, 300, 96);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.x) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.workspace) % 256, 0u);
    EXPECT_GE(s.x, base + shift);
    EXPECT_GE(s.weights - s.x, 300 * 96 * 6);
    EXPECT_LE(static_cast<std::byte*>(s.workspace) + kProductWorkspaceBytes,
              base + shift + split_scratch_bytes(300, 96));
  }
}

}  // namespace
}  // namespace bz::ops::cuda
