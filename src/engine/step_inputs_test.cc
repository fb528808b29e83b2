#include "engine/step_inputs.h"

#include <type_traits>

#include <gtest/gtest.h>

#include "device/registry.h"

namespace bz::engine {
namespace {

// A step is staged once and run once.
static_assert(!std::is_copy_constructible_v<StagedStep> && !std::is_copy_assignable_v<StagedStep>);
static_assert(!std::is_default_constructible_v<StagedStep>);

constexpr StepLimits kLimits{32, 8, 16, 20, 10};
constexpr GraphKey kKey{GraphMode::kFull, 32, 8, 0, 8};

class StepInputsTest : public testing::Test {
 protected:
  // A plan whose every row has one token, with ids that no padding has.
  static StepPlan plan(uint64_t sequence, int32_t rows, int32_t changes = 0) {
    StepPlan p;
    p.cache.sequence = sequence;
    for (int32_t i = 0; i < rows; ++i) {
      PlanRow row;
      row.row = kv::RowId(i + 1);
      row.query_len = 1;
      row.num_logits = 1;
      row.num_samples = 1;
      row.max_seq_len = 100 + i;
      row.sampling.temperature = 0.5f;
      row.sampling.seed = 7;
      p.rows.push_back(row);
      p.tokens.push_back(1000 + i);
    }
    for (int32_t i = 0; i < changes; ++i) {
      p.cache.changes.push_back({kv::ChangeKind::kWidth, kv::GroupId(0), kv::RowId(1), 0, static_cast<uint32_t>(i)});
    }
    return p;
  }
  void stage_and_release(uint64_t sequence, int32_t rows) {
    inputs_.stage(plan(sequence, rows), kKey);
    inputs_.release(sequence);
  }

  std::unique_ptr<device::Device> device_ = device::create_device({.num_threads = 1}).value();
  StepInputs inputs_ = StepInputs::create(*device_, kLimits).value();
};

TEST_F(StepInputsTest, StagesWhatThePlanSays) {
  const StagedStep step = inputs_.stage(plan(1, 3, 2), kKey);
  EXPECT_EQ(step.sequence(), 1u);
  EXPECT_EQ(step.sampler(), ops::SamplerClass::kRandom);
  const ops::StagedSlot slot = inputs_.device_slot(0);
  EXPECT_EQ(slot.header->sequence, 1u);
  EXPECT_EQ(slot.header->num_valid_rows, 3);
  EXPECT_EQ(slot.header->num_valid_tokens, 3);
  EXPECT_EQ(slot.header->num_changes, 2);
  EXPECT_EQ(slot.rows[2].row_index, 3);
  EXPECT_EQ(slot.rows[2].query_len, 1);
  EXPECT_EQ(slot.rows[2].sample, 1);
  EXPECT_EQ(slot.rows[2].max_seq_len, 102);
  EXPECT_EQ(slot.rows[2].sampling.seed, 7u);
  EXPECT_EQ(slot.tokens[2], 1002);
  EXPECT_EQ(slot.changes[1].value, 1u);
}

// Each row's part of the history lies behind those of the rows before it.
TEST_F(StepInputsTest, StagesHistoryAndBiases) {
  StepPlan p = plan(1, 3);
  p.history = {7, 8, 9, 10, 11};
  p.rows[0].history_len = 3;
  p.rows[2].history_len = 2;
  p.biases = {{4, 0.5f}, {5, -1.0f}};
  inputs_.stage(p, kKey);
  const ops::StagedSlot slot = inputs_.device_slot(0);
  EXPECT_EQ(slot.rows[0].history_start, 0);
  EXPECT_EQ(slot.rows[0].history_len, 3);
  EXPECT_EQ(slot.rows[1].history_len, 0);
  EXPECT_EQ(slot.rows[2].history_start, 3);
  EXPECT_EQ(slot.history[4], 11);
  EXPECT_EQ(slot.biases[1].token, 5);
  EXPECT_EQ(slot.biases[1].bias, -1.0f);
}

// Fault F11: what an earlier, larger step left in the slot must not be read as part of a smaller one.
TEST_F(StepInputsTest, WritesTheWholeExtentOverWhatWasThere) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) stage_and_release(sequence, 8);
  inputs_.stage(plan(4, 2), kKey);
  const ops::StagedSlot slot = inputs_.device_slot(0);
  for (int32_t b = 2; b < kKey.rows; ++b) {
    EXPECT_EQ(slot.rows[b].row_index, 0) << b;
    EXPECT_EQ(slot.rows[b].query_len, 0) << b;
    EXPECT_EQ(slot.rows[b].sample, 0) << b;
    EXPECT_EQ(slot.rows[b].num_logits, 0) << b;
    EXPECT_EQ(slot.rows[b].sampling.num_top_logprobs, -1) << b;
    EXPECT_EQ(slot.rows[b].max_seq_len, 0) << b;
    EXPECT_EQ(slot.rows[b].sampling.temperature, 0.0f) << b;
  }
  for (int32_t t = 2; t < kKey.tokens; ++t) EXPECT_EQ(slot.tokens[t], 0) << t;
}

TEST_F(StepInputsTest, AStepWithoutRowsNamesTheNullRowEverywhere) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) stage_and_release(sequence, 8);
  inputs_.stage(plan(4, 0), kKey);
  const ops::StagedSlot slot = inputs_.device_slot(0);
  EXPECT_EQ(slot.header->num_valid_rows, 0);
  for (int32_t b = 0; b < kKey.rows; ++b) EXPECT_EQ(slot.rows[b].row_index, 0) << b;
}

TEST_F(StepInputsTest, ThreeStepsMayBeStagedAndThreeSlotsDiffer) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) inputs_.stage(plan(sequence, 1), kKey);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(inputs_.device_slot(i).header->sequence, static_cast<uint64_t>(i + 1));
}

using StepInputsDeathTest = StepInputsTest;

TEST_F(StepInputsDeathTest, ASlotWhoseResultsWereNotReadIsNotRewritten) {  // HOST-1
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) inputs_.stage(plan(sequence, 1), kKey);
  EXPECT_DEATH(inputs_.stage(plan(4, 1), kKey), "last_released_ \\+ kRingSlots");
  inputs_.release(1);
  EXPECT_EQ(inputs_.stage(plan(4, 1), kKey).sequence(), 4u);
}

TEST_F(StepInputsDeathTest, APlanThatDoesNotFitAborts) {
  EXPECT_DEATH(inputs_.stage(plan(1, 9), kKey), "num_rows <= key.rows");
  EXPECT_DEATH(inputs_.stage(plan(1, 1, 17), kKey), "num_changes <= limits_.max_changes");
  EXPECT_DEATH(inputs_.stage(plan(0, 1), kKey), "sequence >= 1u");
  const GraphKey too_large{GraphMode::kFull, 64, 8, 0, 8};
  EXPECT_DEATH(inputs_.stage(plan(1, 1), too_large), "key.tokens <= limits_.max_tokens");
}

}  // namespace
}  // namespace bz::engine
