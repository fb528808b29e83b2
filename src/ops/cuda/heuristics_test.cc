#include <gmock/gmock.h>

#include "ops/cuda/attention.h"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {
namespace {

using device::cuda::GpuLimits;
constexpr GpuLimits kH200{132, 228 * 1024, 227 * 1024};
constexpr GpuLimits kH100Pcie{114, 228 * 1024, 227 * 1024};
constexpr GpuLimits kA100{108, 164 * 1024, 163 * 1024};
constexpr GpuLimits kL40{142, 100 * 1024, 99 * 1024};
constexpr int32_t kNumSms = kH200.num_sms;
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
          for (const int32_t other : {kH100Pcie.num_sms, 148}) {  // of a B200
            EXPECT_EQ(choose_stream(linear(tokens, k, 4096, e), w, other).num_ctas, other);
          }
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

// As many ctas as registers (4 of 4 warps, 2 of 8) or shared memory hold, and no more than there are pairs for.
TEST(Matvec, ChoicesOfAnH200) {
  struct Choice {
    int32_t tokens, k, pairs, tokens_per_cta, warps, num_ctas;
  };
  for (const Choice& want : {Choice{1, 4096, 14336, 1, 4, 4 * 132}, Choice{1, 14336, 2048, 1, 8, 256},
                             Choice{1, 14336, 14336, 1, 8, 2 * 132}, Choice{1, 576, 96, 1, 4, 24},
                             Choice{2, 4096, 14336, 2, 4, 4 * 132}, Choice{4, 4096, 14336, 4, 4, 3 * 132},
                             Choice{4, 14336, 2048, 1, 8, 256}, Choice{3, 8192, 14336, 2, 4, 3 * 132}}) {
    const MatvecConfig c = choose_matvec(want.tokens, want.k, want.pairs, kH200);
    EXPECT_EQ(c.tokens_per_cta, want.tokens_per_cta) << want.tokens << " " << want.k;
    EXPECT_EQ(c.warps, want.warps) << want.tokens << " " << want.k;
    EXPECT_EQ(c.num_ctas, want.num_ctas) << want.tokens << " " << want.k;
  }
}

// None waits until another has gone, and every multiprocessor has the same number.
TEST(Matvec, AllCtasFindRoomAtOnce) {
  constexpr int64_t kStatic = 1024 + 256;  // of each cta, besides x
  for (const GpuLimits& gpu : {kH200, kH100Pcie, kA100, kL40}) {
    for (int32_t tokens = 1; tokens <= 4; ++tokens) {
      for (int32_t k = 32; !prefer_mma(tokens, k, gpu.cta_shared_bytes, false); k += 32) {
        const MatvecConfig c = choose_matvec(tokens, k, 1 << 20, gpu);
        ASSERT_EQ(c.num_ctas % gpu.num_sms, 0) << k;
        const int64_t ctas_per_sm = c.num_ctas / gpu.num_sms;
        ASSERT_GE(ctas_per_sm, 1) << k;
        ASSERT_LE(ctas_per_sm * (int64_t{4} * c.tokens_per_cta * k + kStatic), gpu.sm_shared_bytes) << k;
      }
    }
  }
}

TEST(Mma, SharesKWhereTilesWouldLeaveMultiprocessorsIdle) {
  for (const GpuLimits& gpu : {kH200, kH100Pcie, kA100, kL40}) {
    EXPECT_EQ(choose_mma(16, gpu.num_sms * 64, gpu.num_sms, false).k_split, 1);
    EXPECT_EQ(choose_mma(16, (gpu.num_sms - 1) * 64, gpu.num_sms, false).k_split, 4);
    EXPECT_EQ(choose_mma(16, gpu.num_sms * 64, gpu.num_sms, true).k_split, 4);  // PAD-9b: whatever the GPU
  }
}

// What a model's FFN can ask for: 28,672 (Llama 70B) and 53,248 (405B).
TEST(PreferMma, RowsThatSharedMemoryCannotHold) {
  EXPECT_TRUE(prefer_mma(1, 28672, kL40.cta_shared_bytes, false));
  EXPECT_FALSE(prefer_mma(1, 28672, kA100.cta_shared_bytes, false));
  EXPECT_TRUE(prefer_mma(1, 53248, kA100.cta_shared_bytes, false));
  EXPECT_FALSE(prefer_mma(1, 53248, kH200.cta_shared_bytes, false));
  EXPECT_TRUE(prefer_mma(1, 61440, kH200.cta_shared_bytes, false));
  constexpr int64_t kStatic = 32 * 4 + 4 * 4;  // matvec.cuh: sums and scale
  for (const GpuLimits& gpu : {kH200, kA100, kL40}) {
    for (int32_t tokens = 1; tokens <= 4; ++tokens) {
      for (int32_t k = 32; !prefer_mma(tokens, k, gpu.cta_shared_bytes, false); k += 32) {
        const int64_t x_bytes = int64_t{4} * choose_matvec(tokens, k, 4096, gpu).tokens_per_cta * k;
        ASSERT_LE(x_bytes + kStatic, gpu.cta_shared_bytes) << k;
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

// Walked by as many ctas as have room, once there are more pieces than those: the others have a cluster each.
TEST(PlanAttention, ManyTokensShareTheCtasThatHaveRoom) {
  for (const auto& [gpu, ctas_per_sm] :
       {std::pair(kH200, 2), std::pair(kH100Pcie, 2), std::pair(kA100, 1), std::pair(kL40, 1)}) {
    const int32_t ctas = ctas_per_sm * gpu.num_sms;
    EXPECT_EQ(plan_attention(ctas / 8, ctas / 8, 8, 4096, gpu, true, false).many_ctas, 0) << gpu.num_sms;
    EXPECT_EQ(plan_attention(ctas / 8 + 1, ctas / 8 + 1, 8, 4096, gpu, true, false).many_ctas, ctas) << gpu.num_sms;
    const AttentionPlan mixed = plan_attention(64, 4, 1, 4096, gpu, true, false);
    EXPECT_TRUE(mixed.prefill);
    EXPECT_EQ(mixed.many_ctas, ctas) << "rows with few tokens, and padding, in a step with prompts";
    EXPECT_EQ(plan_attention(1, 1, 8, 4096, gpu, true, false).cluster, 8);
  }
}

// PAD-9b: how a row's sums are split depends on nothing but the row.
TEST(PlanAttention, InvariantSumsAreSplitAlikeAtEveryNumberOfTokens) {
  for (int32_t tokens = 1; tokens <= 4096; tokens *= 2) {
    const AttentionPlan plan = plan_attention(tokens, 4, 8, 4096, kH200, true, true);
    EXPECT_FALSE(plan.prefill);
    EXPECT_EQ(plan.many_ctas, 0);
    EXPECT_EQ(plan.cluster, 4);
    EXPECT_EQ(plan.positions_log2, 8);
  }
}

}  // namespace
}  // namespace bz::ops::cuda
