// A step may be planned before the results of the one before are read, and a prompt may begin in the prefix cache: a
// request's tokens are the same to the last one, whatever ends, is cancelled or is preempted meanwhile.
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

struct CollectTokens final : engine::Sink {
  void on_output(const engine::Output& output) override {
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    cached = output.num_cached_tokens;
    if (output.finished) finished = output.finished;
  }
  std::vector<int32_t> tokens;
  int32_t cached = 0;
  std::optional<engine::FinishReason> finished;
};

class Pipeline : public testing::Test {
 protected:
  Pipeline() : file_(quantized_tiny()) {}

  std::unique_ptr<engine::LoadedModel> load_with(int32_t in_flight, const engine::LoadOptions& o) {
    auto model = load(o);
    model->core().set_max_in_flight(in_flight);
    return model;
  }
  engine::LoadOptions options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.max_num_seqs = 8;
    o.prefix_caching = false;
    return o;
  }
  // Runs them all; cancels the one with the given index after some steps.
  std::vector<std::shared_ptr<CollectTokens>> run(engine::LoadedModel& model,
                                                  const std::vector<engine::Request>& requests, int cancel = -1) {
    std::vector<std::shared_ptr<CollectTokens>> sinks;
    for (const engine::Request& request : requests) {
      sinks.push_back(std::make_shared<CollectTokens>());
      model.core().add(engine::RequestId(next_id_++), request, sinks.back());
    }
    int steps = 0;
    while (model.core().step()) {
      if (++steps == 5 && cancel >= 0) {
        model.core().cancel(engine::RequestId(next_id_ - requests.size() + static_cast<size_t>(cancel)));
      }
    }
    EXPECT_TRUE(model.core().alive());
    for (const auto& sink : sinks) EXPECT_TRUE(sink->finished.has_value());
    const engine::EngineStats stats = model.core().stats();
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
    return sinks;
  }
  static std::vector<std::vector<int32_t>> tokens(const std::vector<std::shared_ptr<CollectTokens>>& sinks) {
    std::vector<std::vector<int32_t>> all;
    for (const auto& sink : sinks) all.push_back(sink->tokens);
    return all;
  }

  TemporaryModel file_;
  std::vector<engine::Request> requests_ = mixed_requests(24, 60, 20, 320, 11);
  uint64_t next_id_ = 1;
};

TEST_F(Pipeline, TwoStepsInFlightGiveTheSameTokens) {
  const auto expected = tokens(run(*load_with(1, options()), requests_));
  EXPECT_EQ(tokens(run(*load_with(2, options()), requests_)), expected);
}

TEST_F(Pipeline, AStopTokenDropsTheSurplusToken) {
  const auto free_run = tokens(run(*load_with(1, options()), requests_));
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (free_run[i].size() > 3) requests_[i].stop_token_ids = {free_run[i][3]};
  }
  const auto expected = tokens(run(*load_with(1, options()), requests_));
  EXPECT_NE(expected, free_run);
  EXPECT_EQ(tokens(run(*load_with(2, options()), requests_)), expected);
}

TEST_F(Pipeline, PreemptedAndCancelledMeanwhile) {
  auto expected = tokens(run(*load_with(1, options()), requests_));
  engine::LoadOptions small = options();
  small.block_size = 16;
  small.kv_cache_bytes = 60 << 10;
  const auto model = load_with(2, small);
  auto actual = tokens(run(*model, requests_, 3));
  EXPECT_GT(model->core().stats().requests_preempted, 0);
  EXPECT_LE(actual[3].size(), expected[3].size());
  actual[3] = expected[3] = {};
  EXPECT_EQ(actual, expected);
}

TEST_F(Pipeline, ACachedPrefixGivesTheSameTokens) {
  for (engine::Request& request : requests_) {  // half of every prompt is shared
    request.prompt.insert(request.prompt.begin(), requests_[0].prompt.begin(), requests_[0].prompt.end());
    request.prompt.resize(std::max<size_t>(request.prompt.size(), 40), 7);
  }
  const auto expected = tokens(run(*load_with(1, options()), requests_));
  engine::LoadOptions cached = options();
  cached.prefix_caching = true;
  cached.block_size = 16;
  for (const int32_t in_flight : {1, 2}) {
    const auto model = load_with(in_flight, cached);
    EXPECT_EQ(tokens(run(*model, requests_)), expected);
    const auto again = run(*model, requests_);
    EXPECT_EQ(tokens(again), expected);
    for (size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i]->cached, static_cast<int32_t>((requests_[i].prompt.size() - 1) / 16 * 16));
    }
    EXPECT_GT(model->core().stats().prefix_hit_tokens, 0);
  }
}

// A conversation's second turn computes only its new tokens.
TEST_F(Pipeline, TheSecondTurnStartsWhereTheFirstEnded) {
  engine::LoadOptions cached = options();
  cached.prefix_caching = true;
  cached.block_size = 16;
  const auto model = load_with(1, cached);
  engine::Request first = requests_[0];
  first.sampling.temperature = 0;
  first.prompt.resize(50, 9);
  first.max_tokens = 30;
  first.ignore_eos = true;
  const auto answer = run(*model, {first})[0]->tokens;
  ASSERT_EQ(answer.size(), 30u);
  engine::Request second = first;
  second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
  second.prompt.push_back(5);
  EXPECT_EQ(run(*model, {second})[0]->cached, 64);  // 79 tokens were computed: four whole blocks
}

}  // namespace
}  // namespace bz::test
