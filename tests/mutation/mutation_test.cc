// The checks themselves are checked: faults that public engines have shipped are brought back one by one, in the
// shipped translation units (a second build of them with BZ_MUTATIONS). Each does harm where guard and checks are off,
// and is caught where they are on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutation.h"
#include "mutation/scenarios.h"
#include "support/models.h"

namespace bz::test {
namespace {

using device::NullGuard;
using enum Mutation;

constexpr uint32_t bits(std::initializer_list<Mutation> mutations) {
  uint32_t all = 0;
  for (const Mutation m : mutations) all |= mutation_bit(m);
  return all;
}

// What stops a fault in a running engine, besides the sanitizer.
enum class CaughtBy {
  kGuard,     // the null block's protection
  kSequence,  // prepare's sequence check (PAD-10)
  kReserve,   // prepare's check that a row stays within what its plan reserved
  kSanitizer  // nothing but the sanitizer
};

struct Case {
  const char* name;
  Scenario scenario;
  uint32_t harmful;                // does harm with guard and checks off: the fault, its partner, checks switched off
  std::vector<uint32_t> harmless;  // parts of it that do nothing alone, which is why it has a partner
  uint32_t fault;                  // what is caught
  CaughtBy caught_by;
  const char* sanitizer_says;
  // false: the GPU's ops, which all take the number of valid rows or tokens, stop before what is stale: it stores no K
  // or V and samples nothing. Its sign stays in the step view, where the sanitizer sees it.
  bool harms_on_gpu = true;
};

const Case kCases[] = {
    {"F01_slot_of_the_null_row_with_F06",
     Scenario::kPaddedDecode,
     bits({kSlotWithoutNullTest, kCountPaddedAsValid}),
     {bits({kSlotWithoutNullTest}), bits({kCountPaddedAsValid})},
     bits({kSlotWithoutNullTest}),
     CaughtBy::kGuard,
     "padded token . writes slot 0 \\(block 0\\), should be -1"},
    {"F06_padding_counts_as_valid_with_F25",
     Scenario::kPaddedDecode,
     bits({kCountPaddedAsValid, kZeroFilledSlots}),
     {bits({kCountPaddedAsValid})},
     bits({kCountPaddedAsValid, kZeroFilledSlots}),
     CaughtBy::kGuard,
     "tokens count as valid, should be 0"},
    {"F11_only_live_rows_staged",
     Scenario::kRowChangesHands,
     bits({kStageOnlyLiveRows, kNoReserveCheck}),
     {bits({kNoReserveCheck})},
     bits({kStageOnlyLiveRows}),
     CaughtBy::kSanitizer,
     "batch row 2 names table row ., should be 0",
     false},
    {"F08_release_without_change_with_F11",
     Scenario::kBlocksChangeHands,
     bits({kReleaseWithoutChange, kStageOnlyLiveRows, kNoReserveCheck}),
     {bits({kReleaseWithoutChange, kNoReserveCheck}), bits({kStageOnlyLiveRows, kNoReserveCheck})},
     bits({kReleaseWithoutChange, kStageOnlyLiveRows}),
     CaughtBy::kReserve,
     "table row . has width . on the device, 0 on the host",
     false},
    {"F09_dummy_runs_the_last_real_batch",
     Scenario::kIdleRank,
     bits({kDummySkipsStaging, kNoSequenceCheck, kNoReserveCheck}),
     {bits({kNoSequenceCheck, kNoReserveCheck})},
     bits({kDummySkipsStaging}),
     CaughtBy::kSequence,
     "batch row 0 names table row 1, should be 0"},
    {"F10_replay_after_the_blocks_changed_hands",
     Scenario::kIdleRankLater,
     bits({kDummySkipsStaging, kNoSequenceCheck}),
     {bits({kNoSequenceCheck})},
     bits({kDummySkipsStaging}),
     CaughtBy::kSequence,
     "batch row 0 names table row 1, should be 0"},
    {"F25_zero_filled_slots",
     Scenario::kPaddedDecode,
     bits({kZeroFilledSlots}),
     {},
     bits({kZeroFilledSlots}),
     CaughtBy::kGuard,
     "padded token . writes slot . \\(block .\\), should be -1",
     false},
    {"F25_zero_filled_slots_with_F06",
     Scenario::kPaddedDecode,
     bits({kZeroFilledSlots, kCountPaddedAsValid}),
     {},
     bits({kZeroFilledSlots, kCountPaddedAsValid}),
     CaughtBy::kGuard,
     "padded token . writes slot 0 \\(block 0\\), should be -1"},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Mutations : public testing::TestWithParam<std::tuple<Case, std::string>> {
 protected:
  Mutations() : file_(quantized_tiny()) {}
  void SetUp() override {
    BZ_SKIP_WITHOUT_TEST_DEVICE();
    GTEST_FLAG_SET(death_test_style, tests_use_gpu() ? "threadsafe" : "fast");  // no fork with a GPU in use
  }
  const Case& fault() const { return std::get<0>(GetParam()); }
  bool harms() const { return fault().harms_on_gpu || !tests_use_gpu(); }
  const std::string& isa() const { return std::get<1>(GetParam()); }
  Outcome play(uint32_t mutations, NullGuard guard, bool sanitize) const {
    return test::play(file_.path(), isa(), fault().scenario, mutations, guard, sanitize);
  }
  // What a user of the engine would see: another answer, bytes in the null block, or an engine that stopped.
  std::string harm(const Outcome& outcome) const {
    if (!outcome.alive) return "stopped: " + outcome.failure;
    if (!outcome.null_block_clean) return "the null block is not zero";
    return first_difference(right_answers(file_.path(), isa(), fault().scenario), outcome.trace);
  }

 private:
  TemporaryModel file_;
};

TEST_P(Mutations, WithoutItTheScenarioGoesWell) {
  for (const NullGuard guard : {NullGuard::kOff, NullGuard::kReadOnly, NullGuard::kHard}) {
    const Outcome outcome = play(0, guard, true);
    EXPECT_EQ(harm(outcome), "");
    EXPECT_THAT(outcome.violations, testing::IsEmpty());
  }
}

TEST_P(Mutations, ItDoesHarmWhereGuardAndChecksAreOff) {
  const Outcome outcome = play(fault().harmful, NullGuard::kOff, false);
  EXPECT_TRUE(outcome.alive) << outcome.failure << " (a check is still on)";
  const std::string what = harm(outcome);
  std::printf("%s: %s\n", fault().name, what.c_str());
  if (harms()) {
    EXPECT_NE(what, "");
  } else {
    EXPECT_EQ(what, "");
  }
}

TEST_P(Mutations, ItsPartsAloneDoNot) {
  for (const uint32_t part : fault().harmless) EXPECT_EQ(harm(play(part, NullGuard::kOff, false)), "");
}

TEST_P(Mutations, ItIsCaught) {
  const Case& c = fault();
  if (c.caught_by == CaughtBy::kGuard && !harms()) {
    EXPECT_EQ(harm(play(c.harmful, NullGuard::kReadOnly, false)), "");  // nothing to catch
    return;
  }
  if (c.caught_by == CaughtBy::kGuard && tests_use_gpu()) {
    EXPECT_EXIT(play(c.harmful, NullGuard::kReadOnly, false), testing::ExitedWithCode(1),
                "fault on the device: step 1.*cudaErrorIllegalAddress");
    return;
  }
  if (c.caught_by == CaughtBy::kGuard) {
    EXPECT_EXIT(play(c.fault, NullGuard::kReadOnly, false), testing::ExitedWithCode(1),
                "guard fault: access to block 0, the null block, at byte .* by op rope_store, layer 0, step 1;");
    return;
  }
  const Outcome outcome = play(c.fault, NullGuard::kReadOnly, true);
  switch (c.caught_by) {
    case CaughtBy::kSequence: EXPECT_THAT(outcome.failure, testing::HasSubstr("PAD-10")); break;
    case CaughtBy::kReserve: EXPECT_THAT(outcome.failure, testing::HasSubstr("reserved")); break;
    default: EXPECT_THAT(outcome.violations, testing::Not(testing::IsEmpty())); break;
  }
}

// By a check that shares no code with what it checks, and does not know which fault it looks for.
TEST_P(Mutations, TheSanitizerNamesIt) {
  const Outcome outcome = play(fault().harmful, NullGuard::kOff, true);
  EXPECT_THAT(outcome.violations, testing::Contains(testing::ContainsRegex(fault().sanitizer_says)));
}

std::string case_name(const testing::TestParamInfo<std::tuple<Case, std::string>>& info) {
  const std::string isa = isa_test_name({std::get<1>(info.param), info.index});
  return fmt::format("{}_{}", std::get<0>(info.param).name, isa);
}

INSTANTIATE_TEST_SUITE_P(Faults, Mutations,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(batch_invariant_isas())),
                         case_name);

}  // namespace
}  // namespace bz::test
