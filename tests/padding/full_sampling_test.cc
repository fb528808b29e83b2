// Penalties, biases, min_tokens and log probabilities through the whole engine: a request's tokens, logits and log
// probabilities are the same to the bit whatever stands around it (PAD-9b), and are what the definitions say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/scoring.h"
#include "support/session.h"

namespace bz::test {
namespace {

constexpr int32_t kVocab = 320;

class FullSampling : public testing::TestWithParam<std::string> {
 protected:
  FullSampling() : file_(quantized_tiny()) { ask_for_everything(requests_, kVocab); }

  engine::LoadOptions options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.max_num_seqs = 64;
    o.max_num_batched_tokens = 512;
    return o;
  }
  std::unique_ptr<engine::LoadedModel> load_tiny(const engine::LoadOptions& o) const { return load(o, GetParam()); }
  Trace alone() const {
    engine::LoadOptions o = options();
    o.graphs = engine::GraphMode::kNone;
    return run_requests(*load_tiny(o), requests_, {.at_once = 1});
  }
  void expect_same(const engine::LoadOptions& o, const RunStyle& style) const {
    EXPECT_EQ(first_difference(alone(), run_requests(*load_tiny(o), requests_, style)), "");
  }
  static engine::Request greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
    engine::Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.ignore_eos = true;
    return r;
  }

  TemporaryModel file_;
  std::vector<engine::Request> requests_ = mixed_requests(64, 90, 20, kVocab, 17);
};

TEST_P(FullSampling, AllAtOnceAndWithDummySteps) {
  expect_same(options(), {});
  expect_same(options(), {.at_once = 7, .min_rows = 16, .dummy_between = true});
}

TEST_P(FullSampling, EveryChunkSize) {
  for (const int32_t chunk : {16, 64}) {
    engine::LoadOptions o = options();
    o.max_num_batched_tokens = chunk;
    o.max_num_seqs = std::min(chunk, 24);
    expect_same(o, {});
  }
}

TEST_P(FullSampling, AfterPreemption) {
  engine::LoadOptions o = options();
  o.block_size = 4;
  o.kv_cache_bytes = 96 << 10;
  const auto model = load_tiny(o);
  EXPECT_EQ(first_difference(alone(), run_requests(*model, requests_, {})), "");
  EXPECT_GT(model->core().stats().requests_preempted, 5);
}

// The history of a row that begins with a prefix hit holds the tokens that no step of its own computed.
TEST_P(FullSampling, PrefixesAreCached) {
  const Trace expected = alone();
  engine::LoadOptions o = options();
  o.prefix_caching = true;
  o.block_size = 4;
  o.kv_cache_bytes = 1 << 20;
  o.kv_sanitize = true;
  const auto model = load_tiny(o);
  for (const size_t at_once : {64, 3}) {
    EXPECT_EQ(first_difference(expected, run_requests(*model, requests_, {.at_once = at_once})), "");
  }
  EXPECT_GT(model->core().stats().prefix_hit_tokens, 1000);
  EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
}

// Greedy with penalties, by the formulas, from the logits that the model said.
TEST_P(FullSampling, TokensAreTheBestOfThePenalisedLogits) {
  const auto model = load_tiny(options());
  Session session(*model);
  engine::Request r = greedy({5, 9, 5, 200, 31, 9}, 40);
  r.sampling.repetition_penalty = 1.3f;
  r.sampling.frequency_penalty = 0.3f;
  r.sampling.presence_penalty = 0.4f;
  r.sampling.logit_bias = {{77, 1.5f}};
  const size_t index = session.submit(r);
  std::vector<int32_t> prompt_and_outputs = r.prompt;
  int changed = 0;
  while (!session.finished(index)) {
    session.step();
    std::vector<double> x(session.last_logits().begin(), session.last_logits().end());
    const auto plain = std::max_element(x.begin(), x.end()) - x.begin();
    x[77] += 1.5;
    for (int32_t id = 0; id < kVocab; ++id) {
      double& logit = x[static_cast<size_t>(id)];
      const auto seen = std::count(prompt_and_outputs.begin(), prompt_and_outputs.end(), id);
      const auto outputs = std::count(prompt_and_outputs.begin() + 6, prompt_and_outputs.end(), id);
      if (seen > 0) logit = logit > 0 ? logit / 1.3 : logit * 1.3;
      logit -= 0.3 * static_cast<double>(outputs) + (outputs > 0 ? 0.4 : 0.0);
    }
    const auto best = std::max_element(x.begin(), x.end()) - x.begin();
    const int32_t token = session.tokens(index).back();
    EXPECT_EQ(token, best) << "output " << prompt_and_outputs.size() - 6;
    changed += best != plain;
    prompt_and_outputs.push_back(token);
  }
  EXPECT_GT(changed, 5);  // the penalties decided something
}

TEST_P(FullSampling, NoEndBeforeMinTokens) {
  const auto model = load_tiny(options());
  Session session(*model);
  engine::Request r = greedy({1, 2, 3}, 20);
  r.stop_token_ids = {7};
  r.sampling.logit_bias = {{7, 100.0f}};
  const size_t at_once = session.submit(r);
  r.min_tokens = 6;
  const size_t later = session.submit(r);
  session.finish_all_work();
  EXPECT_TRUE(session.tokens(at_once).empty());
  EXPECT_EQ(session.tokens(later).size(), 6u);
  EXPECT_THAT(session.tokens(later), testing::Not(testing::Contains(7)));
  EXPECT_EQ(session.reason(later), engine::FinishReason::kStop);
}

// Of every token of the prompt, whatever the chunks and whatever lies in the prefix cache; and again of what follows.
TEST_P(FullSampling, PromptLogprobsAreThoseOfTheTeacherForcedLogits) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 75; ++i) prompt.push_back((i * 37 + i / 3) % kVocab);
  std::vector<double> want;
  score_text(*load_tiny(options()), prompt, 64, [&](int32_t position, std::span<const float> logits) {
    if (static_cast<size_t>(position) + 1 == prompt.size()) return;
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    want.push_back(logits[static_cast<size_t>(prompt[static_cast<size_t>(position) + 1])] - std::log(sum));
  });
  for (const int32_t chunk : {16, 512}) {
    engine::LoadOptions o = options();
    o.max_num_batched_tokens = chunk;
    o.max_num_seqs = 8;
    o.block_size = 4;
    o.prefix_caching = true;
    const auto model = load_tiny(o);
    for (int round = 0; round < 2; ++round) {
      Session session(*model);
      engine::Request r = greedy(prompt, 3);
      r.prompt_logprobs = 3;
      r.logprobs = 1;
      const size_t index = session.submit(r);
      session.finish_all_work();
      const auto& got = session.prompt_logprobs(index);
      ASSERT_EQ(got.size(), prompt.size() - 1);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].token, prompt[i + 1]);
        EXPECT_NEAR(got[i].logprob, want[i], 1e-5);
        EXPECT_EQ(got[i].num_top, 3);
        EXPECT_GE(got[i].top_logprobs[0], got[i].logprob);
      }
      ASSERT_EQ(session.logprobs(index).size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(session.logprobs(index)[i].token, session.tokens(index)[i]);
        EXPECT_EQ(session.logprobs(index)[i].rank, 1);
        EXPECT_EQ(session.logprobs(index)[i].num_top, 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, FullSampling, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
