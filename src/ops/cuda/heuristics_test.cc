#include <gmock/gmock.h>

#include "ops/cuda/linear.h"

namespace bz::ops::cuda {
namespace {

constexpr int32_t kNumSms = 132;
constexpr DType kWeights[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

LinearParams linear(int32_t tokens, int32_t k, int32_t num_pairs, Epilogue epilogue = Epilogue::kStore) {
  LinearParams p;
  p.tokens = tokens, p.k = k, p.num_pairs = num_pairs, p.epilogue = epilogue;
  return p;
}

// Two ctas of a kernel on one multiprocessor would leave others without: each takes more than half of the memory.
TEST(Stream, OneCtaFillsAMultiprocessor) {
  for (const DType w : kWeights) {
    for (const int32_t k : {2048, 4096, 8192, 14336}) {
      for (int32_t tokens = 1; tokens <= 4; ++tokens) {
        for (const Epilogue e : {Epilogue::kStore, Epilogue::kSiluMul, Epilogue::kRopeStore}) {
          const StreamConfig c = choose_stream(linear(tokens, k, 4096, e), w, kNumSms);
          ASSERT_GE(c.num_stages, 1) << dtype_info(w).name << " K " << k << " T " << tokens;
          EXPECT_LE(c.num_stages, 32);  // a lane each
          EXPECT_GE(2 * (c.shared_bytes + 1024), 228 * 1024);
          EXPECT_LE(c.shared_bytes, 226 * 1024);
          EXPECT_EQ(c.num_ctas, kNumSms);
        }
      }
    }
  }
}

// q8_0 rows of 576 elements have 612 bytes: no multiple of 16.
TEST(Stream, LeavesRowsThatCopiesCannotFetchToTheOtherKernel) {
  EXPECT_EQ(choose_stream(linear(2, 576, 4096), DType::kQ8_0, kNumSms).num_stages, 0);
  EXPECT_GE(choose_stream(linear(2, 576, 4096), DType::kBF16, kNumSms).num_stages, 3);
}

TEST(Stream, FewRowsGoToAsManyMultiprocessorsAsTheyCan) {
  const StreamConfig c = choose_stream(linear(1, 3072, 512), DType::kBF16, kNumSms);
  EXPECT_EQ(c.warps, 4);
  EXPECT_EQ(c.num_ctas, 128);
}

// What a model's FFN can ask for: 28,672 (Llama 70B) and 53,248 (405B) on GPUs whose ctas have 99, 163 and 227 KiB.
TEST(PreferMma, RowsThatSharedMemoryCannotHold) {
  constexpr int64_t kSmall = 99 * 1024, kMiddle = 163 * 1024, kLarge = 227 * 1024;
  EXPECT_TRUE(prefer_mma(1, 28672, kSmall, false));
  EXPECT_FALSE(prefer_mma(1, 28672, kMiddle, false));
  EXPECT_TRUE(prefer_mma(1, 53248, kMiddle, false));
  EXPECT_FALSE(prefer_mma(1, 53248, kLarge, false));
  EXPECT_TRUE(prefer_mma(1, 61440, kLarge, false));
  constexpr int64_t kStatic = 32 * 4 + 4 * 4;  // matvec.cuh: sums and scale
  for (const int64_t shared : {kSmall, kMiddle, kLarge}) {
    for (int32_t tokens = 1; tokens <= 4; ++tokens) {
      for (int32_t k = 32; !prefer_mma(tokens, k, shared, false); k += 32) {
        ASSERT_LE(int64_t{4} * choose_matvec(tokens, k, 4096, kNumSms).tokens_per_cta * k + kStatic, shared) << k;
      }
    }
  }
}

TEST(PreferSplit, ManyTokensAndNeverInvariantSums) {
  for (const DType w : kWeights) {
    EXPECT_FALSE(prefer_split(w, 1 << 30, 1, false));
    EXPECT_TRUE(prefer_split(w, 1, 2048, false));
    EXPECT_FALSE(prefer_split(w, 1 << 30, 2048, true));
    for (int32_t tokens = 1; tokens < 600; ++tokens) {  // once reached, always
      EXPECT_LE(prefer_split(w, 1 << 20, tokens, false), prefer_split(w, 1 << 20, tokens + 1, false));
      EXPECT_LE(prefer_split(w, 1 << 20, tokens, false), prefer_split(w, 1 << 30, tokens, false));
    }
  }
}

TEST(PreferSplit, LargeBf16WeightsFromFourTokensOn) {
  constexpr int64_t kLarge = 4'000'000;
  EXPECT_FALSE(prefer_split(DType::kBF16, kLarge, 3, false));
  EXPECT_TRUE(prefer_split(DType::kBF16, kLarge, 4, false));
  EXPECT_FALSE(prefer_split(DType::kBF16, kLarge - 1, 63, false));
  EXPECT_TRUE(prefer_split(DType::kBF16, kLarge - 1, 64, false));
  EXPECT_FALSE(prefer_split(DType::kQ4_1, kLarge, 255, false));  // written out for each product, large or not
}

}  // namespace
}  // namespace bz::ops::cuda
