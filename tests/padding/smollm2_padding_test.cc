// PAD-9b on the real model: a smaller sample of what tiny_padding_test.cc does. All at once, padded, in small chunks,
// on two threads, with dummy steps between and NaN in every unowned byte, against one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

class SmolLm2Padding : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { BZ_SKIP_WITHOUT_TEST_DEVICE(); }
  static engine::LoadOptions options() {
    engine::LoadOptions o = test_options(smollm2_or_die());
    o.max_model_len = 512;
    o.max_num_seqs = 16;
    o.kv_cache_bytes = int64_t{96} << 20;
    return o;
  }
};

TEST_P(SmolLm2Padding, NothingAroundARequestChangesABitOfItsLogits) {
  // The reference ops are slow.
  const bool fast = GetParam() != "reference";
  const auto requests = mixed_requests(fast ? 10 : 4, fast ? 80 : 24, fast ? 8 : 4, 49152, 21);
  engine::LoadOptions one_by_one = options();
  one_by_one.graphs = engine::GraphMode::kNone;
  const Trace expected = run_requests(*load(one_by_one, GetParam()), requests, {.at_once = 1});

  engine::LoadOptions crowded = options();
  crowded.max_num_batched_tokens = 32;
  crowded.device.num_threads = 2;
  crowded.kv_sanitize = true;
  const auto model = load(crowded, GetParam());
  const Trace trace = run_requests(*model, requests, {.min_rows = 8, .dummy_between = true});
  EXPECT_EQ(first_difference(expected, trace), "");
  EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
  EXPECT_TRUE(model->core().stats().null_block_clean);
}

INSTANTIATE_TEST_SUITE_P(Isa, SmolLm2Padding, testing::ValuesIn(batch_invariant_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
