// Attention's kernels without tensor cores, on caches of f32: one that has a cta for each token, and one whose ctas
// walk prepare's lists and claim their work.
#include "ops/cuda/attention.h"
#include "device/attention_cases.h"

namespace bz::ops::cuda {
void launch_attention_f32(device::Stream& stream, const AttentionParams& p, const AttentionPlan& plan);
}

namespace bz::test {
namespace {

void run(const AttentionShape& a, std::initializer_list<int32_t> lengths,
         std::initializer_list<AttentionBatch> batches) {
  uint32_t seed = 0;
  for (const int32_t max_len : lengths) {
    for (const AttentionBatch& batch : batches) {
      for (const int32_t ctas : {0, 1, 7}) {  // 0: one a token and unit
        const auto attend = [&](device::Stream& s, const ops::AttentionParams& p) {
          ops::cuda::launch_attention_f32(s, p, {.many_ctas = ctas});
        };
        run_attention(a, max_len, batch, attend, ++seed);
      }
    }
  }
}

TEST(EmulatedAttention, EqualsReference) {
  run({4, 2, 16, 16, DType::kF32}, {7, 40}, {kDecode, kNulledRows, kPaddingAlone});
  run({2, 2, 16, 16, DType::kF32}, {20}, {kShortChunks});
  run({12, 2, 32, 4, DType::kF32}, {20}, {kNulledRows, kPaddingAlone});  // two units a KV head
}

// More than 384 positions: several warps share them; fewer, beside them: a warp each where there are enough.
TEST(EmulatedAttention, OfLongRowsEqualsReference) { run({4, 2, 16, 16, DType::kF32}, {600}, {kDecode, kNulledRows}); }

}  // namespace
}  // namespace bz::test
