// Bounded exhaustive search: every state that 8 operations can reach from an empty cache with 2 requests, 5 usable
// blocks, 2 groups and 1 transfer. States are told apart by hash; each is checked whole (cache_world.h).
#include <cstdlib>
#include <unordered_map>

#include <gtest/gtest.h>

#include "kv/cache_world.h"

namespace bz::kv {
namespace {

struct Choice {
  Op op;
  uint32_t a, b;
};

std::vector<Choice> choices() {
  std::vector<Choice> all = {{Op::kAdmit, 0, 4},  {Op::kTakePlan, 0, 0}, {Op::kRunPlan, 0, 0},  {Op::kProcessed, 0, 0},
                             {Op::kReset, 0, 0},  {Op::kBeginOp, 0, 0},  {Op::kFinishOp, 0, 0}, {Op::kFailOp, 0, 0},
                             {Op::kExpire, 0, 0}, {Op::kClose, 0, 0}};
  for (uint32_t row : {0u, 1u}) {
    for (uint32_t b : {0u, 3u}) all.push_back({Op::kAppend, row, b});  // 1 token, 4 tokens
    for (uint32_t b : {0u, 1u}) all.push_back({Op::kVerify, row, b});  // 1 accepted, 2 accepted
    for (Op op : {Op::kRelease, Op::kFork, Op::kPublish}) all.push_back({op, row, 0});
    all.push_back({Op::kSend, row, 0});
    all.push_back({Op::kReceive, row, 3});  // 4 tokens, its bytes land early
    all.push_back({Op::kReceive, row, 8});  // 4 tokens, late
  }
  return all;
}

class Search {
 public:
  Search() : choices_(choices()) {}

  // Returns what went wrong, with the path to it.
  std::string explore(const World& world, int depth) {
    if (depth == 0) return "";
    for (const Choice& c : choices_) {
      World next = world;
      if (!next.apply(c.op, c.a, c.b)) continue;
      ++edges;
      const std::string step = fmt::format("op {} ({}, {}); ", static_cast<int>(c.op), c.a, c.b);
      int& seen = depth_left_[next.hash()];
      if (seen >= depth) continue;  // was explored with at least as much left
      if (seen == 0) {
        ++states;
        const std::string error = next.check();
        if (!error.empty()) return step + error;
      }
      seen = depth;
      const std::string error = explore(next, depth - 1);
      if (!error.empty()) return step + error;
    }
    return "";
  }

  int64_t states = 0, edges = 0;

 private:
  std::vector<Choice> choices_;
  std::unordered_map<uint64_t, int> depth_left_;
};

CacheConfig two_groups(GroupSpec first, GroupSpec second, int32_t num_spec) {
  CacheConfig c;
  c.groups = {first, second};
  c.num_blocks = 6;
  c.max_rows = 3;
  c.max_seq_len = 8;
  c.num_spec = num_spec;
  c.max_transfers = 1;
  c.block_stride = 4096;
  c.prefix_cache = true;
  return c;
}

TEST(CacheExhaustive, EveryStateOfEightOperations) {
  const GroupSpec full{CacheKind::kFull, 2, 0, {}}, window{CacheKind::kSlidingWindow, 2, 3, {}};
  const GroupSpec state{CacheKind::kState, 1, 0, {}, 1, true};
  // And two that read the other's table: pooled keys, and a ring beside a state.
  GroupSpec pooled{CacheKind::kCompressed, 1, 0, {}, 2}, ring{CacheKind::kRing, 4, 0, {}, 2};
  pooled.table_of = ring.table_of = 0;
  int64_t states = 0, edges = 0;
  for (const CacheConfig& config : {two_groups(full, window, 0), two_groups(full, state, 1),
                                    two_groups(full, pooled, 1), two_groups(state, ring, 1)}) {
    Search search;
    ASSERT_EQ(search.explore(World(config, 5), std::getenv("BLOCKZERO_LONG") != nullptr ? 10 : 8), "");
    states += search.states;
    edges += search.edges;
  }
  std::printf("exhaustive search: %lld states, %lld operations\n", static_cast<long long>(states),
              static_cast<long long>(edges));
  EXPECT_GT(states, 10000);
}

}  // namespace
}  // namespace bz::kv
