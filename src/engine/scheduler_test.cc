// The scheduler alone, with made-up results: request r's n-th token is 1000 * r + n.
#include "engine/scheduler.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/integrity.h"

namespace bz::engine {
namespace {

using testing::ElementsAre;

struct Collect final : Sink {
  void on_output(const Output& output) override {
    EXPECT_FALSE(ended.contains(output.choice)) << "an output after the last one";
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    if (output.finished) {
      finished = output.finished;
      ended.insert(output.choice);
    }
    error = output.error;
    ++deliveries;
  }
  std::vector<int32_t> tokens;
  std::optional<FinishReason> finished;  // of the choice that ended last
  std::set<int32_t> ended;               // choices
  std::string error;
  int deliveries = 0;
};

constexpr int32_t kEnd = 9999;

class SchedulerTest : public testing::Test {
 protected:
  struct Sizes {
    int32_t seqs = 4, tokens = 32, blocks = 33, block_size = 4, model_len = 64, changes = 1 << 16, sink_tokens = 0;
  };
  void make(const Sizes& sizes) {
    SchedulerConfig config;
    config.max_num_seqs = sizes.seqs;
    config.max_num_batched_tokens = sizes.tokens;
    config.max_model_len = sizes.model_len;
    config.end_token_ids = {kEnd};
    kv::CacheConfig cache;
    cache.groups.push_back(
        {sizes.sink_tokens > 0 ? kv::CacheKind::kSink : kv::CacheKind::kFull, sizes.block_size, 0, {0}});
    cache.groups.back().sink_tokens = sizes.sink_tokens;
    cache.num_blocks = sizes.blocks;
    cache.max_rows = sizes.seqs + 1;
    cache.max_seq_len = sizes.model_len;
    cache.max_changes_per_plan = sizes.changes;
    cache.prefix_cache = false;
    scheduler_ = std::make_unique<Scheduler>(config, cache);
  }

  static Request request(int32_t prompt, int32_t max_tokens) {
    Request r;
    for (int32_t i = 0; i < prompt; ++i) r.prompt.push_back(i);
    r.max_tokens = max_tokens;
    return r;
  }
  std::shared_ptr<Collect> add(uint64_t id, const Request& r) {
    const Status status = scheduler_->check(r);
    EXPECT_TRUE(status.ok()) << status.message();
    auto sink = std::make_shared<Collect>();
    scheduler_->add(RequestId(id), r, sink);
    return sink;
  }
  std::shared_ptr<Collect> add(uint64_t id, int32_t prompt, int32_t max_tokens) {
    return add(id, request(prompt, max_tokens));
  }

  // Plans a step and completes it. Its rows are plan_.rows.
  void plan() {
    scheduler_->schedule(plan_);
    change_plans_ = 0;
    while (!scheduler_->take_cache_plan(plan_.cache)) {
      EXPECT_TRUE(plan_.cache.rows.empty());
      scheduler_->processed(plan_.cache.sequence);
      ++change_plans_;
    }
    ASSERT_EQ(plan_.cache.rows.size(), plan_.rows.size());
    for (size_t i = 0; i < plan_.rows.size(); ++i) {
      EXPECT_EQ(plan_.cache.rows[i].max_seq_len(), plan_.rows[i].max_seq_len);
    }
  }
  void process() {
    std::vector<ops::RowResult> results;
    for (const PlanRow& row : plan_.rows) {
      const auto id = static_cast<int32_t>(row.request.value());
      results.push_back({row.num_samples > 0 ? next_token(id) : ops::kTokenNone, -1.0f});
    }
    scheduler_->processed(plan_.cache.sequence);
    scheduler_->process(plan_, results);
    EXPECT_THAT(kv::check_integrity(scheduler_->cache()), testing::IsEmpty());
  }
  void step() {
    plan();
    process();
  }
  int run_to_end() {
    int steps = 0;
    while (scheduler_->has_work() && steps < 1000) {
      step();
      ++steps;
    }
    return steps;
  }
  int32_t next_token(int32_t id) {
    const int32_t n = num_sampled_[id]++;
    const auto forced = forced_.find({id, n});
    return forced != forced_.end() ? forced->second : 1000 * id + n;
  }
  // (request, tokens) of each row of the last plan.
  std::vector<std::pair<uint64_t, int32_t>> rows() const {
    std::vector<std::pair<uint64_t, int32_t>> all;
    for (const PlanRow& row : plan_.rows) all.emplace_back(row.request.value(), row.query_len);
    return all;
  }
  int32_t free_blocks() const { return scheduler_->cache().num_free_blocks(); }

  std::unique_ptr<Scheduler> scheduler_;
  StepPlan plan_;
  int change_plans_ = 0;
  std::map<int32_t, int32_t> num_sampled_;
  std::map<std::pair<int32_t, int32_t>, int32_t> forced_;  // (request, output index) -> result
};

using Rows = std::vector<std::pair<uint64_t, int32_t>>;

TEST_F(SchedulerTest, ARequestPrefillsThenDecodesUntilItsLength) {
  make({});
  const auto sink = add(1, 5, 3);
  plan();
  EXPECT_EQ(rows(), (Rows{{1, 5}}));
  EXPECT_THAT(plan_.tokens, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(plan_.rows[0].num_samples, 1);
  EXPECT_NE(plan_.rows[0].row, kv::kNullRow);
  process();
  plan();
  EXPECT_EQ(rows(), (Rows{{1, 1}}));
  EXPECT_THAT(plan_.tokens, ElementsAre(ops::kTokenFromRowState));
  EXPECT_EQ(plan_.rows[0].max_seq_len, 6);
  process();
  step();
  EXPECT_THAT(sink->tokens, ElementsAre(1000, 1001, 1002));
  EXPECT_EQ(sink->finished, FinishReason::kLength);
  EXPECT_EQ(sink->deliveries, 3);
  EXPECT_FALSE(scheduler_->has_work());
  EXPECT_EQ(free_blocks(), 32);
}

TEST_F(SchedulerTest, PromptsAreCutToTheTokenBudget) {
  make({.tokens = 8});
  add(1, 20, 2);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 8}}));
  EXPECT_EQ(plan_.rows[0].num_samples, 0);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 8}}));
  EXPECT_EQ(plan_.tokens.front(), 8);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 4}}));
  EXPECT_EQ(plan_.rows[0].num_samples, 1);
}

TEST_F(SchedulerTest, DecodesComeFirstThenChunksThenNewRequests) {
  make({.tokens = 8});
  add(1, 3, 10);
  step();
  add(2, 12, 10);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 7}}));
  add(3, 9, 10);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 5}, {3, 2}}));
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 1}, {3, 6}}));
}

TEST_F(SchedulerTest, NoMoreRequestsRunThanRows) {
  make({.seqs = 2});
  for (uint64_t id = 1; id <= 3; ++id) add(id, 2, 2);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 2}, {2, 2}}));
  EXPECT_EQ(scheduler_->num_waiting(), 1);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 1}}));
  step();
  EXPECT_EQ(rows(), (Rows{{3, 2}}));
}

TEST_F(SchedulerTest, ARequestWaitsUntilItsPromptFits) {
  make({.blocks = 7});  // six usable blocks of four tokens
  const auto first = add(1, 15, 4);
  add(2, 9, 2);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 15}}));
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}}));
  while (!first->finished) step();
  step();
  EXPECT_EQ(rows(), (Rows{{2, 9}}));
}

TEST_F(SchedulerTest, TheLastAdmittedIsPreemptedAndGivesTheSameTokens) {
  make({.blocks = 7});
  const auto first = add(1, 7, 12);
  const auto second = add(2, 7, 12);
  run_to_end();
  EXPECT_GT(scheduler_->counters().preempted, 0);
  for (int32_t n = 0; n < 12; ++n) {
    EXPECT_EQ(first->tokens.at(static_cast<size_t>(n)), 1000 + n);
    EXPECT_EQ(second->tokens.at(static_cast<size_t>(n)), 2000 + n);
  }
  EXPECT_EQ(free_blocks(), 6);
}

// It computes prompt and outputs again, and its random numbers go on from the output it had reached.
TEST_F(SchedulerTest, APreemptedRequestBeginsItsRowAgainWithAllItsTokens) {
  make({.blocks = 7});
  const auto first = add(1, 7, 12);
  add(2, 7, 12);
  while (scheduler_->counters().preempted == 0) step();
  const int32_t outputs = num_sampled_[2];
  while (!first->finished) step();
  plan();
  EXPECT_EQ(rows(), (Rows{{2, 7 + outputs}}));
  EXPECT_EQ(plan_.rows[0].sampling.first_output, static_cast<uint32_t>(outputs));
  EXPECT_EQ(plan_.tokens.back(), 2000 + outputs - 1);
}

TEST_F(SchedulerTest, ACancelledRequestGivesItsBlocksBackWithinOneStep) {  // ENG-2
  make({});
  const auto gone = add(1, 9, 20);
  const auto stays = add(2, 3, 4);
  step();
  EXPECT_TRUE(scheduler_->cancel(RequestId(uint64_t{1})));
  EXPECT_EQ(gone->finished, FinishReason::kCancelled);
  step();
  EXPECT_EQ(rows(), (Rows{{2, 1}}));
  EXPECT_EQ(free_blocks(), 32 - 1);
  run_to_end();
  EXPECT_EQ(stays->tokens.size(), 4u);
  EXPECT_EQ(gone->tokens.size(), 1u);
  EXPECT_FALSE(scheduler_->cancel(RequestId(uint64_t{1})));
}

TEST_F(SchedulerTest, AWaitingRequestCanBeCancelled) {
  make({.seqs = 1});
  add(1, 3, 4);
  const auto waiting = add(2, 3, 4);
  step();
  EXPECT_TRUE(scheduler_->cancel(RequestId(uint64_t{2})));
  EXPECT_EQ(waiting->finished, FinishReason::kCancelled);
  EXPECT_EQ(scheduler_->num_waiting(), 0);
}

TEST_F(SchedulerTest, ACancelBetweenPlanAndResultsDropsTheSurplusToken) {
  make({});
  const auto gone = add(1, 3, 5);
  const auto stays = add(2, 3, 2);
  plan();
  scheduler_->cancel(RequestId(uint64_t{1}));
  process();
  EXPECT_TRUE(gone->tokens.empty());
  EXPECT_THAT(stays->tokens, ElementsAre(2000));
}

TEST_F(SchedulerTest, ARequestWhoseLogitsAreNanFailsAlone) {  // ENG-1
  make({});
  const auto bad = add(1, 3, 5);
  const auto good = add(2, 3, 5);
  forced_[{1, 2}] = ops::kTokenNan;
  run_to_end();
  EXPECT_EQ(bad->finished, FinishReason::kError);
  EXPECT_THAT(bad->error, testing::HasSubstr("NaN"));
  EXPECT_THAT(bad->tokens, ElementsAre(1000, 1001));
  EXPECT_EQ(good->finished, FinishReason::kLength);
  EXPECT_EQ(good->tokens.size(), 5u);
  EXPECT_EQ(scheduler_->counters().failed, 1);
}

TEST_F(SchedulerTest, EndTokensStopUnlessIgnoredAndAreNotDelivered) {
  make({});
  const auto stops = add(1, 3, 5);
  Request ignoring = request(3, 5);
  ignoring.ignore_eos = true;
  const auto goes_on = add(2, ignoring);
  Request own = request(3, 5);
  own.stop_token_ids = {3001};
  const auto stops_at_own = add(3, own);
  own.stop_token_ids = {4003};
  const auto stops_before_own = add(4, own);
  own.ignore_eos = true;
  own.stop_token_ids = {5003};
  const auto stops_at_own_alone = add(5, own);
  forced_[{1, 1}] = kEnd;
  forced_[{2, 1}] = kEnd;
  forced_[{4, 1}] = kEnd;
  forced_[{5, 1}] = kEnd;
  run_to_end();
  EXPECT_EQ(stops->finished, FinishReason::kStop);
  EXPECT_THAT(stops->tokens, ElementsAre(1000));
  EXPECT_THAT(goes_on->tokens, ElementsAre(2000, kEnd, 2002, 2003, 2004));
  EXPECT_EQ(stops_at_own->finished, FinishReason::kStop);
  EXPECT_THAT(stops_at_own->tokens, ElementsAre(3000));
  EXPECT_THAT(stops_before_own->tokens, ElementsAre(4000));
  EXPECT_EQ(stops_at_own_alone->finished, FinishReason::kStop);
  EXPECT_THAT(stops_at_own_alone->tokens, ElementsAre(5000, kEnd, 5002));
}

// PAD-10: changes that do not fit into one plan go ahead in plans without rows; the step itself is complete.
TEST_F(SchedulerTest, ChangePlansGoAheadWhenThereIsLittleRoom) {
  make({.changes = 2});
  const auto sink = add(1, 30, 3);
  plan();
  EXPECT_GT(change_plans_, 2);  // a row start, eight blocks, a width
  EXPECT_EQ(rows(), (Rows{{1, 30}}));
  process();
  run_to_end();
  EXPECT_THAT(sink->tokens, ElementsAre(1000, 1001, 1002));
}

TEST_F(SchedulerTest, AStepMayBePlannedBeforeTheResultsOfTheOneBefore) {
  make({});
  const auto sink = add(1, 4, 3);
  StepPlan first, second, third;
  scheduler_->schedule(first);
  ASSERT_TRUE(scheduler_->take_cache_plan(first.cache));
  scheduler_->schedule(second);
  ASSERT_TRUE(scheduler_->take_cache_plan(second.cache));
  EXPECT_THAT(second.tokens, ElementsAre(ops::kTokenFromRowState));
  EXPECT_EQ(second.rows.at(0).max_seq_len, 5);
  scheduler_->schedule(third);
  ASSERT_TRUE(scheduler_->take_cache_plan(third.cache));
  StepPlan fourth;
  scheduler_->schedule(fourth);
  EXPECT_TRUE(fourth.rows.empty());  // all three outputs are on their way
  int32_t n = 0;
  for (const StepPlan* p : {&first, &second, &third}) {
    const ops::RowResult result{1000 + n++, 0.0f};
    scheduler_->processed(p->cache.sequence);
    scheduler_->process(*p, {&result, 1});
  }
  EXPECT_THAT(sink->tokens, ElementsAre(1000, 1001, 1002));
  EXPECT_FALSE(scheduler_->has_work());
}

TEST_F(SchedulerTest, FinishAllEndsEveryRequestOnce) {
  make({.seqs = 1});
  const auto running = add(1, 3, 5);
  const auto waiting = add(2, 3, 5);
  step();
  scheduler_->finish_all(FinishReason::kError, "why");
  EXPECT_EQ(running->finished, FinishReason::kError);
  EXPECT_EQ(waiting->finished, FinishReason::kError);
  EXPECT_EQ(waiting->error, "why");
  EXPECT_FALSE(scheduler_->has_work());
}

// Found by the simulation: such a request was taken and waited for ever.
TEST_F(SchedulerTest, BlocksOfSinksAreNotCountedOn) {
  make({.blocks = 9, .sink_tokens = 4});
  EXPECT_FALSE(scheduler_->check(request(20, 12)).ok());
  ASSERT_TRUE(scheduler_->check(request(20, 8)).ok());
  const auto sink = add(1, 20, 8);
  run_to_end();
  EXPECT_EQ(sink->finished, FinishReason::kLength);
}

TEST_F(SchedulerTest, UrgentRequestsRunFirstAndThePreemptedOneIsTheLeastUrgent) {
  make({.seqs = 2, .blocks = 7});
  Request later = request(7, 12), urgent = request(7, 12);
  later.priority = 3;
  urgent.priority = -3;
  const auto first = add(1, later);
  step();
  add(2, 3, 2);
  add(3, urgent);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {3, 7}}));  // the urgent one overtook the second
  while (scheduler_->counters().preempted == 0) step();
  EXPECT_EQ(plan_.rows.at(0).request, RequestId(uint64_t{3}));  // the one admitted first was preempted
  EXPECT_FALSE(first->finished);
  run_to_end();
  EXPECT_EQ(first->tokens.size(), 12u);
}

TEST_F(SchedulerTest, ChoicesBeginAsCopiesOfThePrompt) {
  make({});
  Request r = request(10, 3);
  r.num_choices = 3;
  r.sampling.seed = 50;
  add(1, r);
  EXPECT_EQ(scheduler_->num_waiting(), 3);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 9}}));
  EXPECT_EQ(plan_.rows[0].num_samples, 0);
  plan();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_THAT(plan_.tokens, ElementsAre(9, 9, 9));
  EXPECT_EQ(plan_.cache.copies.size(), 2u);  // the third, open block, for each
  EXPECT_EQ(plan_.rows[2].sampling.seed, 52u);
  EXPECT_EQ(plan_.rows[2].history_len, 9);
  process();
  run_to_end();
  EXPECT_EQ(free_blocks(), 32);
  EXPECT_EQ(scheduler_->counters().forked, 2);
}

TEST_F(SchedulerTest, ChoicesWithoutARowWaitTheirTurn) {
  make({.seqs = 2});
  Request r = request(10, 2);
  r.num_choices = 3;
  add(1, r);
  step();
  step();
  EXPECT_EQ(rows(), (Rows{{1, 1}, {2, 1}}));
  step();
  step();
  EXPECT_EQ(rows(), (Rows{{3, 10}}));
}

TEST_F(SchedulerTest, WhenTheFirstChoiceLeavesTheNextOneComputesThePrompt) {
  make({.tokens = 4});
  Request r = request(10, 2);
  r.num_choices = 3;
  add(1, r);
  step();
  EXPECT_EQ(rows(), (Rows{{1, 4}}));
  scheduler_->cancel(RequestId(uint64_t{1}));
  EXPECT_EQ(scheduler_->num_waiting(), 2);
  step();
  EXPECT_EQ(rows(), (Rows{{2, 4}}));
  run_to_end();
  EXPECT_EQ(scheduler_->counters().forked, 1);
}

TEST_F(SchedulerTest, ChoicesThatLeaveWhileTheyWaitTakeNobodyAlong) {
  std::array<uint64_t, 4> leaving = {2, 3, 4, 5};  // the choices of the second request; one of them stays
  do {
    make({.seqs = 1});
    add(1, 3, 2);
    Request r = request(10, 2);
    r.num_choices = 4;
    const auto sink = add(2, r);
    step();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(scheduler_->cancel(RequestId(leaving[i])));
    EXPECT_EQ(scheduler_->num_waiting(), 1);
    num_sampled_.clear();
    run_to_end();
    EXPECT_FALSE(scheduler_->has_work());
    EXPECT_EQ(sink->ended.size(), 4u);
    EXPECT_EQ(sink->finished, FinishReason::kLength);
    EXPECT_EQ(sink->tokens.size(), 2u);
    EXPECT_EQ(free_blocks(), 32);
  } while (std::next_permutation(leaving.begin(), leaving.end()));
}

TEST_F(SchedulerTest, EveryPromptTokenIsCountedAlsoOneThatComesAlone) {
  make({.tokens = 4});
  add(1, 1, 3);
  add(2, 9, 2);
  run_to_end();
  EXPECT_EQ(scheduler_->counters().prompt_tokens, 10);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverRunAndNamesTheField) {
  make({.blocks = 9});  // 32 tokens
  EXPECT_EQ(scheduler_->check(request(0, 5)).param(), "prompt");
  EXPECT_EQ(scheduler_->check(request(3, 0)).param(), "max_tokens");
  EXPECT_EQ(scheduler_->check(request(64, 1)).param(), "prompt");
  EXPECT_EQ(scheduler_->check(request(60, 5)).param(), "max_tokens");
  const Status too_large = scheduler_->check(request(20, 13));
  EXPECT_EQ(too_large.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(too_large.message(), testing::HasSubstr("--kv-cache-bytes"));
  EXPECT_EQ(too_large.param(), "max_tokens");
  EXPECT_TRUE(scheduler_->check(request(20, 12)).ok());
  EXPECT_EQ(scheduler_->max_request_tokens(), 32);
  EXPECT_EQ(scheduler_->check(request(32, 1)).param(), "prompt");
  Request bad = request(3, 3);
  const auto expect_bad = [&](const char* field, auto change) {
    Request changed = bad;
    change(changed);
    EXPECT_EQ(scheduler_->check(changed).param(), field);
  };
  expect_bad("n", [](Request& r) { r.num_choices = 0; });
  expect_bad("priority", [](Request& r) { r.priority = 101; });
  expect_bad("min_tokens", [](Request& r) { r.min_tokens = 4; });
  expect_bad("logprobs", [](Request& r) { r.logprobs = 21; });
  expect_bad("repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; });
  expect_bad("presence_penalty", [](Request& r) { r.sampling.presence_penalty = 2.5f; });
  expect_bad("logit_bias", [](Request& r) { r.sampling.logit_bias = {{1, 0.0f}, {1, 1.0f}}; });
  expect_bad("logit_bias", [](Request& r) { r.sampling.logit_bias = {{-1, 0.0f}}; });
}

}  // namespace
}  // namespace bz::engine
