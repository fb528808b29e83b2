// The engine under random traffic on the null device: 200 seeds of 2,000 steps. BLOCKZERO_LONG=1: 10,000 seeds.
#include "sim/simulation.h"

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "sim/cache_mixes.h"
#include "sim/shadow_model.h"

namespace bz::sim {
namespace {

TEST(Simulation, NothingGoesWrong) {
  const uint64_t seeds = std::getenv("BLOCKZERO_LONG") != nullptr ? 10'000 : 200;
  SimReport total;
  std::set<std::string_view> mixes;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimReport report = simulate(seed, 2000);
    ASSERT_EQ(report.failure, "") << "seed " << seed << ", step " << report.step << ": " << report.setting;
    total += report;
    for (const CacheMix& mix : cache_mixes()) {
      if (report.setting.find(fmt::format("cache of {} (", mix.name)) != std::string::npos) mixes.insert(mix.name);
    }
  }
  // What is not exercised is not tested.
  EXPECT_EQ(mixes.size(), cache_mixes().size());
  EXPECT_GT(total.requests, 10'000);
  EXPECT_GT(total.cancelled, 500);
  EXPECT_GT(total.preempted, 500);
  EXPECT_GT(total.refused, 500);
  EXPECT_GT(total.prefix_hit_tokens, 1000);
  EXPECT_GT(total.forks, 500);
  EXPECT_GT(total.accepted_tokens, 1000);
  EXPECT_GT(total.draft_tokens, total.accepted_tokens + 1000);
}

TEST(Simulation, ASeedIsTheSameRunEveryTime) {
  for (const uint64_t seed : {3u, 11u}) {
    const SimReport a = simulate(seed, 500), b = simulate(seed, 500);
    EXPECT_EQ(std::tie(a.step, a.requests, a.tokens, a.preempted, a.setting),
              std::tie(b.step, b.requests, b.tokens, b.preempted, b.setting));
  }
}

TEST(CacheMixes, EveryKindIsAmongThem) {
  std::set<kv::CacheKind> kinds;
  for (const CacheMix& mix : cache_mixes()) {
    for (const kv::GroupSpec& g : mix.groups) kinds.insert(g.kind);
  }
  EXPECT_EQ(kinds.size(), 8u);
}

TEST(Client, KnowsItsAnswer) {
  TrafficConfig config;
  config.vocab_size = 512;
  engine::Request request;
  request.prompt = {7};
  request.max_tokens = 3;
  request.sampling.seed = 5;
  Client probe(request, config);
  const std::vector<int32_t> answer(probe.tokens().begin() + 1, probe.tokens().end());
  engine::Output right;
  right.tokens = answer;
  right.finished = engine::FinishReason::kLength;
  probe.on_output(right);
  EXPECT_EQ(probe.error(), "");

  const auto complains = [&](auto change) {
    Client client(request, config);
    engine::Output output = right;
    change(output);
    client.on_output(output);
    return !client.error().empty();
  };
  EXPECT_TRUE(complains([](engine::Output& o) { o.tokens[1] ^= 1; }));
  EXPECT_TRUE(complains([](engine::Output& o) { o.tokens.pop_back(); }));
  EXPECT_TRUE(complains([](engine::Output& o) { o.tokens.push_back(1); }));
  EXPECT_TRUE(complains([](engine::Output& o) { o.finished = engine::FinishReason::kStop; }));
  EXPECT_TRUE(complains([](engine::Output& o) { o.finished = engine::FinishReason::kCancelled; }));
  EXPECT_TRUE(complains([](engine::Output& o) { o.id = engine::RequestId(uint64_t{9}); }));
}

}  // namespace
}  // namespace bz::sim
