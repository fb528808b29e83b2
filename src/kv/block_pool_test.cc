#include "kv/block_pool.h"

#include <gtest/gtest.h>

namespace bz::kv {
namespace {

TEST(BlockPool, StartsInIdOrderWithoutTheNullBlock) {
  BlockPool pool(4);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.allocate(), BlockId(1u));
  EXPECT_EQ(pool.allocate(), BlockId(2u));
  EXPECT_EQ(pool.allocate(), BlockId(3u));
  EXPECT_FALSE(pool.can_allocate(1));
  EXPECT_TRUE(pool.lists_are_sound());
  EXPECT_DEATH(pool.allocate(), "num_free_");
}

TEST(BlockPool, CachedBlocksAreReusedLast) {
  BlockPool pool(4);
  const BlockId a = pool.allocate(), b = pool.allocate(), c = pool.allocate();
  pool.set_cached(a, true);
  pool.release(a, 0);
  pool.release(b, 0);
  pool.release(c, 0);
  EXPECT_EQ(pool.allocate(), c);
  EXPECT_EQ(pool.allocate(), b);
  EXPECT_EQ(pool.allocate(), a);
}

TEST(BlockPool, FencedBlocksComeBackWhenProcessed) {
  BlockPool pool(4);
  const BlockId a = pool.allocate(), b = pool.allocate();
  pool.release(a, 5);
  pool.release(b, 6);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_fenced(), 2);
  pool.processed(5);
  EXPECT_TRUE(pool.is_free(a));
  EXPECT_TRUE(pool.is_fenced(b));
  EXPECT_TRUE(pool.lists_are_sound());
  pool.add_ref(b);  // a hit on a block that waits: owned again
  EXPECT_EQ(pool.num_fenced(), 0);
  pool.processed(6);
  EXPECT_EQ(pool.ref_count(b), 1);
  EXPECT_TRUE(pool.lists_are_sound());
}

// Each time it leaves an empty place in the queue; these are taken out, and the places behind them move.
TEST(BlockPool, AFencedBlockMayBeHitAnyNumberOfTimes) {
  BlockPool pool(4);
  const BlockId a = pool.allocate(), b = pool.allocate(), c = pool.allocate();
  pool.release(a, 5);
  pool.add_ref(a);
  pool.release(b, 5);
  for (int i = 0; i < 50; ++i) {
    pool.release(c, 5);
    ASSERT_TRUE(pool.lists_are_sound());
    pool.add_ref(c);
  }
  EXPECT_EQ(pool.num_fenced(), 1);
  pool.add_ref(b);
  EXPECT_EQ(pool.num_fenced(), 0);
  EXPECT_TRUE(pool.lists_are_sound());
  pool.processed(5);
  EXPECT_EQ(pool.num_owned(), 3);
}

TEST(BlockPool, SharedBlocksStayUntilTheLastOwner) {
  BlockPool pool(3);
  const BlockId a = pool.allocate();
  pool.add_ref(a);
  pool.release(a, 0);
  EXPECT_EQ(pool.num_owned(), 1);
  pool.release(a, 0);
  EXPECT_TRUE(pool.is_free(a));
  EXPECT_DEATH(pool.release(a, 0), "ref");
}

TEST(BlockPool, NullBlockTakesNoPart) {
  BlockPool pool(3);
  EXPECT_DEATH(pool.add_ref(kNullBlock), "kNullBlock");
  EXPECT_DEATH(pool.release(kNullBlock, 0), "kNullBlock");
  EXPECT_DEATH(pool.set_cached(kNullBlock, true), "kNullBlock");
  EXPECT_DEATH(pool.ref_count(BlockId(3u)), "num_blocks_");
}

TEST(BlockPool, EqualStatesHashEqual) {
  BlockPool a(5), b(5);
  EXPECT_EQ(a.hash(), b.hash());
  const BlockId x = a.allocate();
  EXPECT_NE(a.hash(), b.hash());
  a.release(x, 0);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
}

}  // namespace
}  // namespace bz::kv
