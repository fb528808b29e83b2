// The simulation is itself checked: with each fault brought back into the shipped translation units, a few seeds must
// find it, by a wrong entry, token or table, or by one of the engine's own checks. (Not here: faults of transfers and
// fences, which need a device that runs late; kv_mutation_test finds them.)
#include <sys/wait.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/mutation.h"
#include "sim/simulation.h"

namespace bz::sim {
namespace {

// Exits with 3 when a seed finds something wrong, with 0 when none does.
[[noreturn]] void simulate_until_found(Mutation fault) {
  std::freopen("/dev/null", "w", stderr);
  g_mutations = mutation_bit(fault);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    if (!simulate(seed, 300).failure.empty()) std::_Exit(3);
  }
  std::_Exit(0);
}

bool found(int status) {
  return (WIFEXITED(status) && WEXITSTATUS(status) == 3) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

using enum Mutation;
class SimMutation : public testing::TestWithParam<Mutation> {};

TEST_P(SimMutation, IsFound) { EXPECT_EXIT(simulate_until_found(GetParam()), found, ""); }

INSTANTIATE_TEST_SUITE_P(Each, SimMutation,
                         testing::Values(kSlotWithoutNullTest, kCountPaddedAsValid, kStageOnlyLiveRows,
                                         kReleaseWithoutChange, kDummySkipsStaging, kZeroFilledSlots,
                                         kRingWithoutKeepRule, kWindowByScheduled, kHitsTakenLate, kHitWithoutTokens,
                                         kHitInsideRing, kSharedBlockIsWritten, kRejectedDraftsStay));

TEST(SimMutationNone, NothingIsFoundWithoutOne) {
  g_mutations = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(simulate(seed, 300).failure, "") << seed;
}

}  // namespace
}  // namespace bz::sim
