// A recorded graph is a graph on the CPU too: it holds addresses and plain values, and only staging changes what it
// computes. So every fault that a replayed CUDA graph can have can be made, and is tested, here.
#include <gtest/gtest.h>

#include "support/hand_run.h"
#include "support/models.h"
#include "support/session.h"

namespace bz::engine {

// Replays a forward without staging, which no other code can do.
struct GraphRunnerTestAccess {
  static void replay_forward(GraphRunner& runner, const GraphKey& key) {
    runner.launch(runner.forward_graphs_.at(key));
    runner.stream_->synchronize();
  }
  static ops::PrepareParams device_state(GraphRunner& runner, const GraphKey& key) {
    return runner.memory_.prepare_params(key, runner.inputs_);
  }
};

}  // namespace bz::engine

namespace bz::test {
namespace {

using engine::GraphRunnerTestAccess;

class RecordedGraph : public testing::Test {
 protected:
  RecordedGraph()
      : file_(quantized_tiny()), model_(load(test_options(file_.path()), "reference")), hand_(model_->runner()) {}

  TemporaryModel file_;
  std::unique_ptr<engine::LoadedModel> model_;
  HandRun hand_;
};

TEST_F(RecordedGraph, ReplayedAloneItGivesTheOldResultWhateverThePlanSaysNow) {
  engine::GraphRunner& runner = model_->runner();
  hand_.step({1, 2, 3, 4, 5});
  engine::StepPlan plan = hand_.plan({6});
  const engine::GraphKey key = engine::choose_graph_key(runner.graph_limits(), plan.shape());
  const ops::PrepareParams device = GraphRunnerTestAccess::device_state(runner, key);
  const ops::RowState before = device.row_state[hand_.row().value()];
  hand_.run(plan);
  const std::vector<float> old_logits = hand_.logits(key);
  const int64_t captures = runner.stats().captures;

  const auto rewind = [&] {  // the device forgets that the step ran
    --*device.step_count;
    device.row_state[hand_.row().value()] = before;
  };
  rewind();
  plan.tokens = {200};
  std::fill_n(runner.logits(key).row<float>(0), 1, 0.0f);
  GraphRunnerTestAccess::replay_forward(runner, key);
  EXPECT_EQ(hand_.logits(key), old_logits);

  // Staged, the new plan gives a new result, from the same recorded graph.
  device.row_state[hand_.row().value()] = before;
  engine::StepPlan next = hand_.plan({200});
  --next.rows[0].max_seq_len;
  hand_.run(next);
  EXPECT_NE(hand_.logits(key), old_logits);
  EXPECT_EQ(runner.stats().captures, captures);
}

// PAD-10: without staging, the ring's next slot is not the one that the device expects. Every row becomes empty.
TEST_F(RecordedGraph, AReplayThatWasNotStagedTouchesNoRow) {
  engine::GraphRunner& runner = model_->runner();
  hand_.step({1, 2, 3, 4, 5});
  const engine::StepResult decoded = hand_.step({6});
  const device::SlabRequest& slabs = runner.slabs().request();
  const std::byte* block_1 = runner.slabs().base() + slabs.block_stride;
  const std::vector<std::byte> cache(block_1, block_1 + slabs.block_stride * (slabs.num_blocks - 1));

  GraphRunnerTestAccess::replay_forward(runner, decoded.key);
  const ops::PrepareParams device = GraphRunnerTestAccess::device_state(runner, decoded.key);
  EXPECT_EQ(device.error_state->error, ops::StepError::kSequenceGap);
  EXPECT_EQ(device.view.row_index[0], 0);
  EXPECT_EQ(device.view.groups[0].slots[0], kv::kPadSlot);
  EXPECT_TRUE(std::equal(cache.begin(), cache.end(), block_1));
  for (const float x : hand_.logits(decoded.key)) ASSERT_EQ(x, 0.0f);
}

TEST_F(RecordedGraph, EveryKeyIsCapturedOnce) {
  hand_.step({1, 2, 3, 4, 5});
  for (int32_t i = 0; i < 20; ++i) hand_.step({i});
  EXPECT_EQ(model_->runner().stats().captures, 2);  // mixed-16x1 and decode-1
  EXPECT_EQ(model_->runner().stats().steps, 21);
}

// Serving starts with the small sizes; the larger ones are recorded between steps. Until then their steps run op by op,
// to the same bits, and are counted.
TEST(DeferredCapture, ASizeWithoutAGraphRunsOpByOpUntilItIsRecorded) {
  const TemporaryModel file(quantized_tiny());
  engine::LoadOptions o = test_options(file.path());
  o.max_num_seqs = 16;
  const std::vector<engine::Request> requests = mixed_requests(3, 20, 6, 320, 5);
  const Trace expected = run_requests(*load(o), requests, {});
  const auto model = load(o);
  engine::EngineCore& core = model->core();
  ASSERT_TRUE(core.warm_up(2).ok());
  EXPECT_EQ(model->runner().stats().captures, 2);  // decode-1 and decode-2
  EXPECT_EQ(core.stats().steps_without_graph, 0);
  EXPECT_EQ(first_difference(expected, run_requests(*model, requests, {})), "");
  const int64_t without = core.stats().steps_without_graph;
  EXPECT_GT(without, 0);  // decode-4
  int recorded = 0;
  while (core.capture_one()) ++recorded;
  EXPECT_EQ(recorded, 3);  // 4, 8, 16
  EXPECT_FALSE(core.has_captures());
  EXPECT_EQ(first_difference(expected, run_requests(*model, requests, {})), "");
  EXPECT_EQ(core.stats().steps_without_graph, without);
}

}  // namespace
}  // namespace bz::test
