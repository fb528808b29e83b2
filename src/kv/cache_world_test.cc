// Random walks and exhaustive search over a whole world (cache_world.h), every kind of cache alone and mixed.
#include <cstdlib>
#include <functional>
#include <unordered_set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "kv/cache_world.h"

namespace bz::kv {
namespace {

TEST(CacheWorld, RandomWalksOverEveryKind) {
  const bool longer = std::getenv("BLOCKZERO_LONG") != nullptr;
  const int64_t total = longer ? 1'000'000 : 50'000;
  constexpr int kSteps = 250;
  const std::vector<NamedConfig> configs = world_configs();
  std::vector<int64_t> applied(static_cast<size_t>(Op::kCount), 0);
  int64_t tried = 0;
  for (uint64_t seed = 1; tried < total; ++seed) {
    for (const NamedConfig& c : configs) {
      ASSERT_EQ(random_walk(c.config, seed, kSteps, &applied), "") << c.name << ", seed " << seed;
    }
    tried = 0;
    for (int64_t n : applied) tried += n;
  }
  std::printf("random walks: %lld operations; done:", static_cast<long long>(tried));
  for (size_t op = 0; op < applied.size(); ++op) {
    std::printf(" %lld", static_cast<long long>(applied[op]));
    EXPECT_GT(applied[op], 0) << "op " << op << " never happened";
  }
  std::printf("\n");
}

// The same with inputs that RapidCheck chooses and shrinks.
RC_GTEST_PROP(CacheWorldModel, AnyOperations, (const std::vector<uint32_t>& choices, uint32_t which)) {
  const std::vector<NamedConfig> configs = world_configs();
  World world(configs[which % configs.size()].config, 24);
  for (uint32_t x : choices) {
    world.apply(static_cast<Op>(x % static_cast<uint32_t>(Op::kCount)), x >> 5, x >> 12);
    RC_ASSERT(world.check() == "");
  }
  world.wind_down();
  RC_ASSERT(world.check() == "");
}

}  // namespace
}  // namespace bz::kv
