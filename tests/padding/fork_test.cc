// Forks (KV-6): choices of one prompt share its blocks, and each answers, to the bit, as a request of its own would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

constexpr int32_t kChoices = 4;

class Fork : public testing::TestWithParam<std::string> {
 protected:
  Fork() : file_(quantized_tiny()) {}

  engine::LoadOptions options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.max_num_seqs = 24;
    o.block_size = 16;
    return o;
  }
  // Prompts that end inside a block, at its border, one behind it, and with a single token.
  static std::vector<engine::Request> requests() {
    std::vector<engine::Request> all;
    for (const int32_t length : {1, 2, 16, 17, 18, 40, 75}) {
      engine::Request r;
      for (int32_t i = 0; i < length; ++i) r.prompt.push_back((i * 29 + length) % 320);
      r.max_tokens = 12;
      r.ignore_eos = true;
      r.sampling.temperature = 1.2f;
      r.sampling.seed = static_cast<uint64_t>(100 * length);
      if (length == 40) r.sampling.repetition_penalty = 1.4f;  // the copies' token history counts
      if (length == 18) r.sampling.temperature = 0;
      all.push_back(r);
    }
    return all;
  }
  Trace alone() const {
    std::vector<engine::Request> single;
    for (const engine::Request& r : requests()) {
      for (uint64_t c = 0; c < kChoices; ++c) {
        single.push_back(r);
        single.back().sampling.seed += c;
      }
    }
    return run_requests(*load(options(), GetParam()), single, {.at_once = 1});
  }
  Trace forked(engine::LoadedModel& model, size_t at_once = 100) const {
    std::vector<engine::Request> all = requests();
    for (engine::Request& r : all) r.num_choices = kChoices;
    return run_requests(model, all, {.at_once = at_once});
  }

  TemporaryModel file_;
};

TEST_P(Fork, ChoicesAnswerAsRequestsOfTheirOwn) {
  const Trace expected = alone();
  for (const bool graphs : {false, true}) {
    engine::LoadOptions o = options();
    o.graphs = graphs ? engine::GraphMode::kFull : engine::GraphMode::kNone;
    o.kv_sanitize = graphs;  // what is not copied is NaN
    const auto model = load(o, GetParam());
    EXPECT_EQ(first_difference(expected, forked(*model, graphs ? 100 : 1)), "");
    EXPECT_GT(model->core().stats().requests_forked, 10);
    EXPECT_EQ(model->core().stats().blocks_free, model->core().stats().blocks_total);
    if (graphs) {
      EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
    }
  }
}

TEST_P(Fork, InSmallChunksWithPrefixesAndWithoutRoom) {
  const Trace expected = alone();
  engine::LoadOptions o = options();
  o.max_num_seqs = 5;
  o.max_num_batched_tokens = 16;
  o.block_size = 4;
  o.kv_cache_bytes = 36 << 10;
  o.prefix_caching = true;
  const auto model = load(o, GetParam());
  EXPECT_EQ(first_difference(expected, forked(*model)), "");
  EXPECT_EQ(first_difference(expected, forked(*model, 3)), "");
  EXPECT_GT(model->core().stats().requests_preempted, 0);
  EXPECT_GT(model->core().stats().requests_forked, 0);
}

// The prompt's blocks are there once, but for its last, open one.
TEST_P(Fork, ThePromptIsComputedOnceAndShared) {
  const auto model = load(options(), GetParam());
  Session session(*model);
  engine::Request r = requests().back();  // 75 tokens: five blocks
  r.num_choices = kChoices;
  const int64_t free_before = model->core().stats().blocks_free;
  session.submit(r);
  session.step();
  session.step();
  EXPECT_EQ(free_before - model->core().stats().blocks_free, 4 + kChoices);
  EXPECT_EQ(model->core().stats().prompt_tokens, 74 + kChoices);  // its last token once for each
}

// Whoever leaves, the others answer; also when the one that computes the prompt leaves before it is done.
TEST_P(Fork, AnyChoiceMayLeave) {
  const Trace expected = alone();
  for (const int32_t leaves : {0, 1, 3}) {
    for (const int32_t after : {0, 1, 2, 4}) {
      engine::LoadOptions o = options();
      o.max_num_batched_tokens = 32;
      o.max_num_seqs = 8;
      const auto model = load(o, GetParam());
      Session session(*model);
      engine::Request r = requests().back();
      r.num_choices = kChoices;
      session.submit(r);
      for (int i = 0; i < after; ++i) session.step();
      session.cancel(static_cast<size_t>(leaves));
      session.finish_all_work();
      for (int32_t c = 0; c < kChoices; ++c) {
        if (c == leaves) continue;
        const auto& want = expected[expected.size() - kChoices + static_cast<size_t>(c)];
        EXPECT_EQ(session.trace()[static_cast<size_t>(c)], want) << leaves << " leaves after " << after;
      }
      EXPECT_EQ(model->core().stats().blocks_free, model->core().stats().blocks_total);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Fork, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
