#include "engine/graph_key.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bz::engine {
namespace {

constexpr GraphLimits kLimits{GraphMode::kFull, 512, 24};

StepShape decode(int32_t rows) { return {.tokens = rows, .rows = rows}; }
StepShape mixed(int32_t tokens, int32_t rows) { return {.tokens = tokens, .rows = rows, .all_single_token = false}; }
std::string key_name(const StepShape& shape) { return choose_graph_key(kLimits, shape).name(); }

TEST(GraphKey, DecodeStepsPadToACaptureSizeAndToTheLimit) {
  EXPECT_EQ(key_name(decode(1)), "decode-1");
  EXPECT_EQ(key_name(decode(3)), "decode-4");
  EXPECT_EQ(key_name(decode(4)), "decode-4");
  EXPECT_EQ(key_name(decode(17)), "decode-24");
  EXPECT_EQ(key_name(decode(24)), "decode-24");
}

TEST(GraphKey, CaptureSizes) {
  EXPECT_THAT(decode_capture_sizes(1), testing::ElementsAre(1));
  EXPECT_THAT(decode_capture_sizes(20), testing::ElementsAre(1, 2, 4, 8, 16, 20));
  const std::vector<int32_t> sizes = decode_capture_sizes(512);
  for (const int32_t size : {1, 2, 4, 8, 16, 24, 240, 248, 256, 272, 496, 512}) {
    EXPECT_THAT(sizes, testing::Contains(size));
  }
  EXPECT_EQ(sizes.size(), 4u + 30u + 17u);
  // Every decode step runs in one of them, the smallest that holds it.
  const GraphLimits limits{GraphMode::kFull, 512, 500};
  const std::vector<int32_t> captured = decode_capture_sizes(500);
  for (int32_t rows = 1; rows <= 500; ++rows) {
    EXPECT_EQ(choose_graph_key(limits, decode(rows)).rows, *std::lower_bound(captured.begin(), captured.end(), rows));
  }
}

TEST(GraphKey, StepSizesAreAllThatKeysHave) {
  EXPECT_THAT(step_sizes({GraphMode::kFull, 48, 20}), testing::ElementsAre(1, 2, 4, 8, 16, 20, 32, 48));
  for (const GraphLimits limits : {GraphLimits{GraphMode::kFull, 512, 70}, {GraphMode::kAuto, 100, 100}}) {
    const std::vector<int32_t> sizes = step_sizes(limits);
    for (int32_t tokens = 1; tokens <= limits.max_tokens; ++tokens) {
      for (const int32_t rows : {1, 7, 50, limits.max_rows}) {
        StepShape shape = rows < tokens ? mixed(tokens, rows) : decode(rows);
        for (shape.logits = 1; shape.logits <= tokens; shape.logits += 37) {
          const GraphKey key = choose_graph_key(limits, shape);
          EXPECT_THAT(sizes, testing::Contains(key.tokens));
          EXPECT_THAT(sizes, testing::Contains(key.logits));
        }
      }
    }
  }
}

TEST(GraphKey, MixedStepsPadTokensAndRows) {
  EXPECT_EQ(key_name(mixed(2, 1)), "mixed-16x1");
  EXPECT_EQ(key_name(mixed(100, 3)), "mixed-128x4");
  EXPECT_EQ(key_name(mixed(300, 20)), "mixed-512x24");
}

TEST(GraphKey, AStepWithoutRowsIsTheSmallestDecodeStep) { EXPECT_EQ(key_name({}), "decode-1"); }

TEST(GraphKey, AgreedSizesPadFurther) {
  StepShape shape = decode(2);
  shape.min_rows = 9;
  EXPECT_EQ(key_name(shape), "decode-16");
  shape.min_tokens = 60;
  EXPECT_EQ(key_name(shape), "mixed-64x16");
}

TEST(GraphKey, ScoringHasKeysOfItsOwn) {
  StepShape shape = mixed(12, 1);
  shape.logits = 12;
  EXPECT_EQ(key_name(shape), "mixed-16x1-scored");
  EXPECT_EQ(choose_graph_key(kLimits, shape).logits, 16);
  shape.logits = 1;
  EXPECT_EQ(key_name(shape), "mixed-16x1");
  EXPECT_EQ(choose_graph_key(kLimits, shape).logits, 1);
}

TEST(GraphKey, TheSmallestThatHoldsTheStep) {
  for (int32_t rows = 1; rows <= kLimits.max_rows; ++rows) {
    const GraphKey key = choose_graph_key(kLimits, decode(rows));
    EXPECT_GE(key.rows, rows);
    EXPECT_LT(key.rows, 2 * rows);
    EXPECT_EQ(key.tokens, key.rows);
  }
}

TEST(GraphKeyDeathTest, AStepOverTheLimitsAborts) {
  EXPECT_DEATH(choose_graph_key(kLimits, decode(25)), "max_rows");
  EXPECT_DEATH(choose_graph_key(kLimits, mixed(513, 1)), "max_tokens");
}

}  // namespace
}  // namespace bz::engine
