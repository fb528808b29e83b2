#include "kv/cache_manager.h"

#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/math.h"
#include "kv/integrity.h"
#include "kv/table_mirror.h"

namespace bz::kv {
namespace {

CacheConfig small_config(int32_t num_blocks = 8, int32_t groups = 1) {
  CacheConfig config;
  for (int32_t g = 0; g < groups; ++g) config.groups.push_back({CacheKind::kFull, 4 << g, 0, {g}});
  config.num_blocks = num_blocks;
  config.max_rows = 4;
  config.max_seq_len = 20;
  return config;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(CacheManager, AdmitAppendPlan) {
  CacheManager m(small_config());
  const RowId row = m.admit();
  EXPECT_EQ(row, RowId(1));
  ASSERT_TRUE(m.can_append(row, 6));
  m.append(row, 6);
  CachePlan plan;
  ASSERT_TRUE(m.take_plan(plan));
  EXPECT_EQ(plan.sequence, 1u);
  const std::vector<TableChange> expected = {{ChangeKind::kRowStart, GroupId(0), row, 0, 0},
                                             {ChangeKind::kBlock, GroupId(0), row, 0, 1},
                                             {ChangeKind::kBlock, GroupId(0), row, 1, 2},
                                             {ChangeKind::kWidth, GroupId(0), row, 0, 2}};
  EXPECT_EQ(plan.changes, expected);
  EXPECT_EQ(plan.rows, (std::vector<RowSpan>{{row, 0, 6}}));
  // Two more tokens fit: no change at all.
  m.append(row, 2);
  ASSERT_TRUE(m.take_plan(plan));
  EXPECT_TRUE(plan.changes.empty());
  EXPECT_EQ(plan.rows[0].max_seq_len(), 8);
  EXPECT_EQ(m.num_used_blocks(), 2);
}

TEST(CacheManager, SlotsFollowTheTables) {
  CacheManager m(small_config());
  const RowId row = m.admit();
  m.append(row, 5);
  const GroupView view = m.tables().view(GroupId(0));
  EXPECT_EQ(slot_of(view, row, 0).value(), 4);
  EXPECT_EQ(slot_of(view, row, 4).value(), 8);
  EXPECT_EQ(slot_of(view, row, 8), kPadSlot);
  EXPECT_EQ(slot_of(view, kNullRow, 0), kPadSlot);
}

// What a fault's record tells of a row, cells of a window that has moved on among it.
TEST(CacheManager, ARestatedRowReadsAsTheHostsDoes) {
  CacheConfig config = small_config(20);
  config.groups.push_back({CacheKind::kSlidingWindow, 4, 5, {1}});
  config.max_seq_len = 60;
  config.max_in_flight = 4;
  CacheManager m(config);
  const RowId row = m.admit();
  CachePlan plan;
  for (int32_t tokens = 4; tokens <= 40; tokens += 4) {
    m.append(row, 4);
    ASSERT_TRUE(m.take_plan(plan));
    m.processed(plan.sequence);
    m.set_processed(row, tokens);
  }
  ASSERT_TRUE(m.take_plan(plan));  // what the window gave up last
  ASSERT_GE(m.tables().first(GroupId(1), row), m.tables().max_columns(GroupId(1)));
  TableMirror mirror(config);
  for (uint64_t sequence = 1; sequence <= plan.sequence; ++sequence) {
    CachePlan restated;
    restated.sequence = sequence;
    if (sequence == plan.sequence) m.tables().restate_row(row, restated.changes);
    mirror.apply(restated);
  }
  EXPECT_EQ(joined(check_mirror(m, mirror)), "");
}

TEST(CacheManager, AReleasedRowIsNullInTheNextPlan) {
  CacheManager m(small_config());
  TableMirror mirror(m.config());
  CachePlan plan;
  const RowId row = m.admit();
  m.append(row, 5);
  ASSERT_TRUE(m.take_plan(plan));
  mirror.apply(plan);
  EXPECT_EQ(mirror.width(GroupId(0), row), 2);
  m.release(row);
  ASSERT_TRUE(m.take_plan(plan));
  mirror.apply(plan);
  EXPECT_EQ(mirror.width(GroupId(0), row), 0);
  EXPECT_EQ(joined(check_mirror(m, mirror)), "");
}

TEST(CacheManager, BlocksInFlightAreNotHandedOut) {
  CacheManager m(small_config(3));
  CachePlan plan;
  const RowId a = m.admit();
  m.append(a, 8);
  ASSERT_TRUE(m.take_plan(plan));  // plan 1 reads a's blocks
  m.release(a);
  const RowId b = m.admit();
  EXPECT_FALSE(m.can_append(b, 1));
  EXPECT_EQ(m.num_fenced_blocks(), 2);
  m.processed(1);
  EXPECT_TRUE(m.can_append(b, 8));
  EXPECT_FALSE(m.can_append(b, 9));
}

TEST(CacheManager, ARowReleasedBeforeThePlanIsNotInIt) {
  CacheManager m(small_config());
  const RowId a = m.admit(), b = m.admit(), c = m.admit();
  EXPECT_FALSE(m.can_admit());
  for (RowId row : {a, b, c}) m.append(row, 2);
  m.release(b);
  m.append(c, 1);
  CachePlan plan;
  ASSERT_TRUE(m.take_plan(plan));
  EXPECT_EQ(plan.rows, (std::vector<RowSpan>{{a, 0, 2}, {c, 0, 3}}));
}

TEST(CacheManager, WhatDoesNotFitGoesAheadInChangePlans) {
  CacheConfig config = small_config();
  config.max_changes_per_plan = 2;
  CacheManager m(config);
  TableMirror mirror(config);
  const RowId row = m.admit();
  m.append(row, 16);  // row start, four blocks, a width
  CachePlan plan;
  int plans = 0;
  bool complete = false;
  while (!complete) {
    complete = m.take_plan(plan);
    EXPECT_LE(plan.changes.size(), 2u);
    EXPECT_EQ(plan.rows.empty(), !complete);
    mirror.apply(plan);
    ++plans;
  }
  EXPECT_EQ(plans, 3);
  EXPECT_EQ(joined(check_mirror(m, mirror)), "");
}

TEST(CacheManager, GroupsTakeAllOrNothing) {
  CacheManager m(small_config(4, 2));  // three usable blocks, groups of 4 and 8 tokens
  const RowId row = m.admit();
  EXPECT_EQ(m.num_blocks_for(9), 5);
  const uint64_t before = m.hash();
  EXPECT_FALSE(m.can_append(row, 9));
  EXPECT_EQ(m.hash(), before);
  ASSERT_TRUE(m.can_append(row, 8));
  m.append(row, 8);
  EXPECT_EQ(m.num_free_blocks(), 0);
  EXPECT_EQ(joined(check_integrity(m)), "");
}

TEST(CacheManager, MisuseAborts) {
  CacheManager m(small_config());
  EXPECT_DEATH(m.append(kNullRow, 1), "kNullRow");
  EXPECT_DEATH(m.release(RowId(2)), "is_claimed");
  const RowId row = m.admit();
  EXPECT_DEATH(m.append(row, 21), "max_seq_len");
  EXPECT_DEATH(m.processed(1), "last_sequence");
  EXPECT_FALSE(m.can_append(row, 21));
}

// ---- random operations against a model that keeps sets of owners and no lists ----

struct Model {
  struct Row {
    int32_t tokens = 0;
    std::vector<std::vector<uint32_t>> blocks;  // by group
  };
  std::map<int32_t, Row> rows;
  std::map<uint32_t, uint64_t> fenced;  // block -> the plan that may still touch it
  uint64_t taken = 0, done = 0;
};

// Uniform in [from, to), whatever RapidCheck's size is.
uint64_t pick(uint64_t from, uint64_t to) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(from, to)); }

void run_model(const CacheConfig& config, int steps) {
  CacheManager m(config);
  TableMirror mirror(config);
  Model model;
  CachePlan plan;
  std::set<int32_t> in_plan;
  const auto used = [&] {
    std::set<uint32_t> blocks;
    for (const auto& [id, row] : model.rows) {
      for (const auto& group : row.blocks) blocks.insert(group.begin(), group.end());
    }
    return blocks;
  };
  const auto needed = [&](const Model::Row& row, int32_t total) {
    int64_t n = 0;
    for (size_t g = 0; g < config.groups.size(); ++g)
      n += ceil_div(total, config.groups[g].block_size) - static_cast<int64_t>(row.blocks[g].size());
    return n;
  };
  const auto pick_row = [&] {
    auto it = model.rows.begin();
    std::advance(it, static_cast<int64_t>(pick(0, model.rows.size())));
    return it->first;
  };
  for (int step = 0; step < steps; ++step) {
    const int op = static_cast<int>(pick(0, 10));
    const auto free_blocks =
        config.num_blocks - 1 - static_cast<int64_t>(used().size()) - static_cast<int64_t>(model.fenced.size());
    RC_ASSERT(m.num_free_blocks() == free_blocks);
    if (op < 2) {
      RC_ASSERT(m.can_admit() == (static_cast<int32_t>(model.rows.size()) < config.max_rows - 1));
      if (!m.can_admit()) continue;
      const RowId row = m.admit();
      RC_ASSERT(row != kNullRow && !model.rows.count(row.value()));
      model.rows[row.value()].blocks.resize(config.groups.size());
    } else if (op < 6 && !model.rows.empty()) {
      const int32_t id = pick_row();
      const int32_t n = static_cast<int32_t>(pick(1, 9));
      Model::Row& row = model.rows[id];
      const bool fits = row.tokens + n <= config.max_seq_len && needed(row, row.tokens + n) <= free_blocks;
      RC_ASSERT(m.can_append(RowId(id), n) == fits);
      if (!fits) continue;
      const std::set<uint32_t> before = used();
      m.append(RowId(id), n);
      row.tokens += n;
      in_plan.insert(id);
      for (size_t g = 0; g < config.groups.size(); ++g) {
        while (static_cast<int32_t>(row.blocks[g].size()) * config.groups[g].block_size < row.tokens) {
          const uint32_t block =
              m.tables()
                  .block(GroupId(static_cast<int32_t>(g)), RowId(id), static_cast<int32_t>(row.blocks[g].size()))
                  .value();
          RC_ASSERT(block != 0u && !before.count(block) && !model.fenced.count(block));
          row.blocks[g].push_back(block);
        }
      }
    } else if (op < 7 && !model.rows.empty()) {
      const int32_t id = pick_row();
      for (const auto& group : model.rows[id].blocks) {
        for (uint32_t block : group) {
          if (model.taken > model.done) model.fenced[block] = model.taken;
        }
      }
      m.release(RowId(id));
      model.rows.erase(id);
      in_plan.erase(id);
    } else if (op < 9) {
      const bool complete = m.take_plan(plan);
      RC_ASSERT(plan.sequence == ++model.taken);
      mirror.apply(plan);
      RC_ASSERT(plan.rows.size() == (complete ? in_plan.size() : 0u));
      for (const RowSpan& span : plan.rows) {
        RC_ASSERT(in_plan.count(span.row.value()) == 1u);
        RC_ASSERT(span.max_seq_len() == model.rows[span.row.value()].tokens);
      }
      if (complete) {
        in_plan.clear();
        RC_ASSERT(joined(check_mirror(m, mirror)) == "");
      }
    } else if (model.done < model.taken) {
      model.done = pick(model.done, model.taken + 1);
      m.processed(model.done);
      std::erase_if(model.fenced, [&](const auto& entry) { return entry.second <= model.done; });
    }
    RC_ASSERT(joined(check_integrity(m)) == "");
  }
}

RC_GTEST_PROP(CacheManagerModel, OneGroup, ()) { run_model(small_config(12, 1), 60); }
RC_GTEST_PROP(CacheManagerModel, ThreeGroups, ()) { run_model(small_config(20, 3), 60); }
RC_GTEST_PROP(CacheManagerModel, FewChangesPerPlan, ()) {
  CacheConfig config = small_config(16, 2);
  config.max_changes_per_plan = 3;
  run_model(config, 60);
}

// KV-4: zeroing is a copy of the null block, in the plan that hands the block out. Never of a block that a transfer may
// already write, and not of one that has gone back before its plan.
TEST(CacheManager, NewBlocksAreZeroedWhereKernelsReadFirst) {
  CacheConfig config;
  config.groups = {{CacheKind::kFull, 4, 0, {}}, {CacheKind::kFull, 4, 0, {}}};
  config.groups[1].zeroed = true;
  config.num_blocks = 20;
  config.max_rows = 4;
  config.max_seq_len = 32;
  config.max_transfers = 1;
  CacheManager m(config);
  CachePlan plan;
  const RowId row = m.admit();
  m.append(row, 5);
  ASSERT_TRUE(m.take_plan(plan));
  ASSERT_EQ(plan.copies.size(), 2u);
  for (int32_t c : {0, 1})
    EXPECT_EQ(plan.copies[static_cast<size_t>(c)], (BlockCopy{kNullBlock, m.tables().block(GroupId(1), row, c)}));
  EXPECT_EQ(m.pool().ref_count(kNullBlock), 0);
  const RowId loading = m.admit(), gone = m.admit();
  ASSERT_TRUE(m.can_receive(loading, 5));
  m.receive(loading, 5, 1);
  m.append(gone, 5);
  m.release(gone);
  ASSERT_TRUE(m.take_plan(plan));
  EXPECT_TRUE(plan.copies.empty());
  ASSERT_TRUE(check_integrity(m).empty());
}

// KV-6: as many as the staging of a step has room for, and no more. The simulation holds every kind of cache to it.
TEST(CacheManager, ForksOfEveryRowFillTheBoundOnCopies) {
  CacheConfig config;
  config.groups = {{CacheKind::kFull, 4, 0, {}}, {CacheKind::kState, 1, 0, {}}};
  config.num_blocks = 1000;
  config.max_rows = 8;
  config.max_seq_len = 32;
  config.num_spec = 2;
  CacheManager m(config);
  CachePlan plan;
  const RowId parent = m.admit();
  m.append(parent, 6);
  ASSERT_TRUE(m.take_plan(plan));
  int32_t forks = 0;
  for (; m.can_fork(parent); ++forks) m.fork(parent);
  ASSERT_EQ(forks, 6);
  ASSERT_TRUE(m.take_plan(plan));
  EXPECT_EQ(plan.copies.size(), 6u * (1 + 3));  // of each fork an open block and three states
  EXPECT_EQ(max_copies_per_plan(config, 100), 7 * (1 + 3));
  config.groups[0].zeroed = true;
  EXPECT_EQ(max_copies_per_plan(config, 100), 7 * (1 + 3) + 100);
}

// XFER-1: an operation that began cannot be aborted: the blocks it reads stay pinned until it has finished.
TEST(CacheManager, ALeaseThatExpiresKeepsItsPinsWhileAnOperationRuns) {
  CacheConfig config;
  config.groups = {{CacheKind::kFull, 4, 0, {}}};
  config.num_blocks = 8;
  config.max_rows = 3;
  config.max_seq_len = 16;
  config.max_transfers = 1;
  CacheManager m(config);
  CachePlan plan;
  const RowId row = m.admit();
  m.append(row, 8);
  ASSERT_TRUE(m.take_plan(plan));
  m.processed(plan.sequence);
  const TransferId id = m.send(row, 1, 10);
  m.begin_op(id);
  m.release(row);
  EXPECT_EQ(m.expire_leases(11), 0);
  ASSERT_TRUE(m.take_plan(plan));
  m.processed(plan.sequence);
  EXPECT_EQ(m.num_used_blocks(), 2);
  EXPECT_EQ(m.transfer(id).state, TransferState::kRunning);
  m.finish_op(id, true);
  EXPECT_EQ(m.num_used_blocks(), 0);
  EXPECT_EQ(m.transfer(id).state, TransferState::kDone);
}

}  // namespace
}  // namespace bz::kv
