// Prefix hits: whose they are, how long, why not longer, and what goes first (KV-1, KV-3, RING-2).
#include <numeric>

#include <gtest/gtest.h>

#include "kv/integrity.h"

namespace bz::kv {
namespace {

std::vector<int32_t> iota(int32_t n, int32_t from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

CacheConfig config_of(std::vector<GroupSpec> groups) {
  CacheConfig c;
  c.groups = std::move(groups);
  c.num_blocks = 41;
  c.max_rows = 8;
  c.max_seq_len = 128;
  c.prefix_cache = true;
  return c;
}
GroupSpec full(int32_t block_size) { return {CacheKind::kFull, block_size, 0, {}}; }

// Computes a prompt, publishes it and ends the request.
void serve(CacheManager& m, const PrefixQuery& query) {
  PrefixHit hit;
  m.find_prefix(query, hit);
  const auto left = static_cast<int32_t>(query.tokens.size()) - hit.num_tokens;
  ASSERT_TRUE(m.can_admit(hit, left));
  const RowId row = m.admit(hit);
  m.append(row, left);
  CachePlan plan;
  ASSERT_TRUE(m.take_plan(plan));
  m.publish(row, query);
  m.processed(plan.sequence);
  m.set_processed(row, static_cast<int32_t>(query.tokens.size()));
  m.release(row);
  ASSERT_TRUE(m.take_plan(plan));
  m.processed(plan.sequence);
  ASSERT_TRUE(check_integrity(m).empty());
}

int32_t hit_of(const CacheManager& m, const PrefixQuery& query) {
  PrefixHit hit;
  m.find_prefix(query, hit);
  return hit.num_tokens;
}

// Found by the simulation: a request that fitted to the last block waited for ever for the copy of its published state.
TEST(Prefix, ARequestsSizeCountsTheCopyOfItsState) {
  GroupSpec state{CacheKind::kState, 1, 0, {}};
  state.snapshot = true;
  CacheConfig config = config_of({full(4), state});
  EXPECT_EQ(CacheManager(config).num_blocks_for(32), 8 + 2);
  config.prefix_cache = false;
  EXPECT_EQ(CacheManager(config).num_blocks_for(32), 8 + 1);
}

// Found by the simulation: a prompt longer than a window's narrow rows was never admitted.
TEST(Prefix, APromptLongerThanAWindowsRowComesChunkByChunk) {
  GroupSpec window{CacheKind::kSlidingWindow, 4, 6, {}};
  CacheConfig config = config_of({full(4), window});
  config.max_in_flight = 8;
  CacheManager m(config);
  PrefixHit hit;
  m.find_prefix({iota(100)}, hit);
  EXPECT_TRUE(m.can_admit(hit, 100));
  config.num_blocks = 1 + 25 + 4;  // the window's row has five cells: one block is missing
  const CacheManager small(config);
  EXPECT_FALSE(small.can_admit(hit, 100));
  config.num_blocks = 1 + 25 + 5;
  EXPECT_TRUE(CacheManager(config).can_admit(hit, 100));
}

TEST(Prefix, RoomForTwoBillionTokensBehindAHitIsNotThere) {
  CacheManager m(config_of({full(4)}));
  const std::vector<int32_t> prompt = iota(40);
  serve(m, {prompt});
  PrefixHit hit;
  m.find_prefix({prompt}, hit);
  ASSERT_EQ(hit.num_tokens, 36);
  EXPECT_TRUE(m.can_admit(hit, 92));
  EXPECT_FALSE(m.can_admit(hit, 93));
  EXPECT_FALSE(m.can_admit(hit, INT32_MAX));
}

// The cache is full of one prompt's blocks: whoever takes a new block before all its hits takes one of them (F23,
// KV-1).
TEST(Prefix, HitsOfEveryGroupAreTakenBeforeABlockIsGivenAway) {
  CacheConfig config = config_of({full(4), full(8)});
  config.num_blocks = 1 + 5 + 3;
  CacheManager m(config);
  const std::vector<int32_t> tokens = iota(17);
  serve(m, {tokens});
  m.append(m.admit(), 4);  // takes the two blocks that nothing names
  PrefixHit hit;
  m.find_prefix({tokens}, hit);
  ASSERT_EQ(hit.num_tokens, 16);
  ASSERT_EQ(m.num_free_blocks(), 4 + 2);
  const PrefixIndex& index = m.prefix_index();
  const BlockId halves[] = {index.block(hit.path[1], GroupId(1)), index.block(hit.path[3], GroupId(1))};
  ASSERT_TRUE(m.can_admit());
  const RowId row = m.admit(hit);
  EXPECT_EQ(m.num_free_blocks(), 0);
  for (int32_t c : {0, 1}) EXPECT_EQ(m.tables().block(GroupId(1), row, c), halves[c]);
  EXPECT_TRUE(check_integrity(m).empty());
}

TEST(Prefix, TheLastTokenIsNeverAHit) {
  CacheManager m(config_of({full(4)}));
  const std::vector<int32_t> tokens = iota(12);
  serve(m, {tokens});
  EXPECT_EQ(hit_of(m, {tokens}), 8);
  EXPECT_EQ(hit_of(m, {iota(13)}), 12);
  std::vector<int32_t> other = iota(13);
  other[5] = -1;
  EXPECT_EQ(hit_of(m, {other}), 4);
}

TEST(Prefix, TenantAdapterAndMediaKeepApart) {
  const std::vector<int32_t> tokens = iota(13);
  const MediaSpan cat{5, 3, {11, 12}}, dog{5, 3, {11, 13}}, moved{6, 2, {11, 12}};
  std::vector<std::pair<PrefixIdentity, std::vector<MediaSpan>>> all;
  for (uint64_t salt : {0u, 7u}) {
    for (uint64_t adapter : {0u, 3u}) {
      for (const std::vector<MediaSpan>& media : {std::vector<MediaSpan>{}, {cat}, {dog}, {moved}})
        all.push_back({{{salt, 0}, adapter}, media});
    }
  }
  for (const auto& owner : all) {
    CacheManager m(config_of({full(4)}));
    serve(m, {tokens, owner.first, owner.second});
    for (const auto& asker : all) {
      const int32_t hit = hit_of(m, {tokens, asker.first, asker.second});
      // The same request gets everything; the same tenant and adapter what comes before the media; nobody else
      // anything.
      const bool same_media = asker.second.empty() == owner.second.empty() &&
                              (asker.second.empty() || (asker.second[0].start == owner.second[0].start &&
                                                        asker.second[0].content == owner.second[0].content));
      EXPECT_EQ(hit, !(asker.first == owner.first) ? 0 : same_media ? 12 : 4);
    }
  }
}

TEST(Prefix, TailsGoBeforeHeadsAndOldPromptsBeforeNew) {
  CacheConfig config = config_of({full(4)});
  config.num_blocks = 9;  // two prompts of four blocks
  CacheManager m(config);
  serve(m, {iota(16, 0)});
  serve(m, {iota(16, 1000)});
  const RowId row = m.admit();
  m.append(row, 8);  // takes two blocks of the older prompt: its last ones
  EXPECT_EQ(hit_of(m, {iota(17, 0)}), 8);
  EXPECT_EQ(hit_of(m, {iota(17, 1000)}), 16);
}

TEST(Prefix, SaysWhyItMissedPerGroup) {
  GroupSpec window{CacheKind::kSlidingWindow, 4, 8, {}}, state{CacheKind::kState, 1, 0, {}},
      ring{CacheKind::kRing, 8, 0, {}};
  state.snapshot = true;
  ring.ratio = 8;
  CacheManager m(config_of({full(4), window, state, ring}));
  const std::vector<int32_t> tokens = iota(24);
  serve(m, {tokens});
  PrefixHit hit;
  m.find_prefix({iota(30)}, hit);
  EXPECT_EQ(hit.num_tokens, 24);
  std::vector<int32_t> other = iota(30);
  other[21] = -1;
  m.find_prefix({other}, hit);  // five blocks match, and the only state is at token 24
  EXPECT_EQ(hit.num_tokens, 0);
  EXPECT_EQ(hit.groups[0].num_tokens, 20);
  EXPECT_EQ(hit.groups[0].reason, MissReason::kNotCached);
  EXPECT_EQ(hit.groups[1].num_tokens, 20);
  EXPECT_EQ(hit.groups[2].num_tokens, 0);
  EXPECT_EQ(hit.groups[2].reason, MissReason::kNoSnapshot);
  EXPECT_EQ(hit.groups[3].num_tokens, 16);
  EXPECT_EQ(hit.groups[3].reason, MissReason::kUnaligned);
  EXPECT_EQ(miss_reason_name(hit.groups[3].reason), "unaligned");
}

TEST(Prefix, GroupsAgreeOnOneLength) {
  GroupSpec ring{CacheKind::kRing, 6, 0, {}};
  ring.ratio = 3;
  CacheManager m(config_of({full(4), full(8), ring}));
  serve(m, {iota(49)});
  // 40 tokens in blocks of four, 40 in blocks of eight, cut to 24: a multiple of 3, 4 and 8.
  EXPECT_EQ(hit_of(m, {iota(44)}), 24);
  EXPECT_EQ(hit_of(m, {iota(49)}), 48);
}

// F24: what a step computes is a hit for later steps only, and for transfers when it has finished.
TEST(Prefix, PublishedWithItsStep) {
  CacheConfig config = config_of({full(4)});
  config.max_transfers = 1;
  CacheManager m(config);
  const std::vector<int32_t> tokens = iota(8);
  const RowId row = m.admit();
  m.append(row, 8);
  m.publish(row, {tokens});  // no plan was taken: nothing to publish
  EXPECT_EQ(hit_of(m, {iota(9)}), 0);
  CachePlan plan;
  ASSERT_TRUE(m.take_plan(plan));
  m.publish(row, {tokens});
  PrefixHit hit;
  m.find_prefix({iota(9)}, hit);
  EXPECT_EQ(hit.num_tokens, 8);
  const RowId other = m.admit(hit);
  EXPECT_FALSE(m.can_send(other));
  m.processed(plan.sequence);
  EXPECT_TRUE(m.can_send(other));
}

// Between the ends of hash blocks publish() looks at nothing: what was evicted meanwhile is offered again at the next.
TEST(Prefix, APrefixThatWasEvictedUnderARowComesBackWithItsNextBlock) {
  CacheManager m(config_of({full(4)}));
  const std::vector<int32_t> tokens = iota(12);
  const auto compute = [&](RowId row, int32_t from, int32_t to) {
    m.append(row, to - from);
    CachePlan plan;
    ASSERT_TRUE(m.take_plan(plan));
    m.publish(row, {std::span(tokens).first(static_cast<size_t>(to))});
    m.processed(plan.sequence);
  };
  const RowId row = m.admit();
  compute(row, 0, 6);
  EXPECT_EQ(hit_of(m, {tokens}), 4);
  m.reset_prefix_cache();
  compute(row, 6, 7);
  EXPECT_EQ(hit_of(m, {tokens}), 0);
  compute(row, 7, 8);
  EXPECT_EQ(hit_of(m, {tokens}), 8);
}

TEST(Prefix, AnInjectedDigestIsUsed) {
  static int calls = 0;
  CacheConfig config = config_of({full(4)});
  config.digest = [](std::span<const uint8_t> bytes) {
    ++calls;
    Digest d;
    for (size_t i = 0; i < bytes.size(); ++i) d.words[i % 4] = d.words[i % 4] * 31 + bytes[i];
    return d;
  };
  CacheManager m(config);
  serve(m, {iota(16)});
  EXPECT_GE(calls, 4);
  EXPECT_EQ(hit_of(m, {iota(17)}), 16);
  EXPECT_EQ(m.prefix_index().num_cached_blocks(), 4);
  m.reset_prefix_cache();
  EXPECT_EQ(hit_of(m, {iota(17)}), 0);
  EXPECT_EQ(m.prefix_index().num_nodes(), 0);
}

// EAGLE and MTP: the draft layer's entry of a token depends on the token after it, and it drafts from a hidden state of
// the target: the last block of a hit is computed again, in every group.
TEST(Prefix, ADraftLayerRecomputesTheLastBlock) {
  CacheConfig config = config_of({full(4)});
  config.recompute_last_block = true;
  CacheManager m(config);
  const std::vector<int32_t> tokens = iota(13);
  serve(m, {tokens});
  PrefixHit hit;
  m.find_prefix({tokens}, hit);
  EXPECT_EQ(hit.num_tokens, 8);
  EXPECT_EQ(hit.groups[0].reason, MissReason::kDraftLayer);
  m.find_prefix({iota(3)}, hit);
  EXPECT_EQ(hit.num_tokens, 0);
  EXPECT_EQ(hit.groups[0].reason, MissReason::kNone);
}

// KV-3: a digest names a candidate; the tokens decide.
TEST(Prefix, ACollisionIsNoHit) {
  CacheConfig config = config_of({full(4)});
  config.digest = [](std::span<const uint8_t>) { return Digest{{1, 2, 3, 4}}; };
  CacheManager m(config);
  serve(m, {iota(9)});
  EXPECT_EQ(hit_of(m, {iota(9)}), 8);
  EXPECT_EQ(hit_of(m, {iota(9, 100)}), 0);
}

}  // namespace
}  // namespace bz::kv
