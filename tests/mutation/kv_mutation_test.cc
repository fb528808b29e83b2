// The world that checks every cached byte (kv/cache_world.h) is itself checked: with each fault brought back into the
// shipped translation units of kv/, a few random walks must find it, by a wrong byte or by one of kv's own checks.
#include <sys/wait.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/mutation.h"
#include "kv/cache_world.h"

namespace bz::kv {
namespace {

Digest everything_collides(std::span<const uint8_t>) { return {{1, 2, 3, 4}}; }

// Exits with 3 when a walk finds something wrong, with 0 when none does.
[[noreturn]] void walk_until_found(Mutation fault) {
  std::freopen("/dev/null", "w", stderr);
  g_mutations = mutation_bit(fault);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (NamedConfig c : world_configs()) {
      // A hit that another group's allocation evicts needs a cache with hardly anything else to give.
      if (fault == Mutation::kHitsTakenLate) c.config.num_blocks = 10;
      if (fault == Mutation::kHitWithoutTokens) c.config.digest = everything_collides;
      if (!random_walk(c.config, seed, 250, nullptr).empty()) std::_Exit(3);
    }
  }
  std::_Exit(0);
}

bool found(int status) {
  return (WIFEXITED(status) && WEXITSTATUS(status) == 3) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

using enum Mutation;
class KvMutation : public testing::TestWithParam<Mutation> {};

TEST_P(KvMutation, IsFound) { EXPECT_EXIT(walk_until_found(GetParam()), found, ""); }

INSTANTIATE_TEST_SUITE_P(Each, KvMutation,
                         testing::Values(kSlotWithoutNullTest, kReleaseWithoutChange, kRingWithoutKeepRule,
                                         kWindowByScheduled, kReleaseWithoutFence, kPinsDroppedEarly,
                                         kFailedLoadIsTaken, kHitsTakenLate, kPublishAtSchedule, kHitWithoutTokens,
                                         kSharedBlockIsWritten, kHitInsideRing, kNoZeroing, kNullBlockIsGivenOut,
                                         kOneStatePerRow));

TEST(KvMutationNone, NothingIsFoundWithoutOne) {
  g_mutations = 0;
  for (NamedConfig c : world_configs()) {
    EXPECT_EQ(random_walk(c.config, 1, 250, nullptr), "") << c.name;
    c.config.digest = everything_collides;  // collisions cost time, never a wrong hit (KV-3)
    EXPECT_EQ(random_walk(c.config, 2, 250, nullptr), "") << c.name;
    c.config.num_blocks = 10;
    for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(random_walk(c.config, seed, 250, nullptr), "") << c.name;
  }
}

}  // namespace
}  // namespace bz::kv
