// What prepare derives for every kind of cache: rows that moved, ended, never were, and verify steps of speculation.
// The scenarios are those that public projects test. The real staging and the real op, on the CPU.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "device/registry.h"
#include "engine/step_memory.h"
#include "kv/cache_manager.h"
#include "ops/op_table.h"

namespace bz::test {
namespace {

using kv::CacheKind;
using kv::GroupId;
using kv::kNullRow;
using kv::RowId;

constexpr int32_t kSpec = 2;  // tokens speculated per step
constexpr int32_t kRows = 6, kTokens = 48;

// The last two have no tables of their own: pooled keys in the blocks of kFull, a ring in those of kState.
enum Group { kFull, kWindow, kCompressed, kTail, kQsa, kCompressor, kState, kPooled, kTailOfState, kNumGroups };

kv::GroupSpec group(CacheKind kind, int32_t block_size, int32_t ratio = 1, int32_t window = 0) {
  kv::GroupSpec g;
  g.kind = kind;
  g.block_size = block_size;
  g.ratio = ratio;
  g.window = window;
  return g;
}

kv::CacheConfig every_kind() {
  kv::CacheConfig c;
  c.groups = {group(CacheKind::kFull, 16),
              group(CacheKind::kSlidingWindow, 4, 1, 6),
              group(CacheKind::kCompressed, 2, 4),
              group(CacheKind::kRing, kv::pool_ring(4, kSpec), 4),         // GLM-5.3
              group(CacheKind::kRing, kv::qsa_ring(4, kSpec, 16), 4),      // Qwen4
              group(CacheKind::kRing, kv::compressor_ring_v41(kSpec), 2),  // DeepSeek-V4.1
              group(CacheKind::kState, 1),
              group(CacheKind::kCompressed, 4, 4),
              group(CacheKind::kRing, kv::pool_ring(4, kSpec), 4)};
  c.groups[kState].snapshot = true;
  c.groups[kPooled].table_of = kFull;
  c.groups[kTailOfState].table_of = kState;
  c.num_blocks = 200;
  c.max_rows = kRows + 1;
  c.max_seq_len = 64;
  c.max_in_flight = kTokens;
  c.num_spec = kSpec;
  return c;
}

// A manager, the staging and the device's memory of a step path without a model.
class Steps {
 public:
  Steps()
      : device_(device::create_device({.num_threads = 1}).value()),
        ops_(ops::op_table_for(device::DeviceKind::kCpu).value()),
        inputs_(engine::StepInputs::create(*device_, kLimits).value()),
        memory_(engine::StepMemory::create(*device_, {kLimits, every_kind().max_rows, every_kind().max_seq_len, kSpec,
                                                      kv::table_shapes(every_kind())})
                    .value()),
        stream_(device_->create_stream()),
        manager(every_kind()) {}

  // Rows with `count` tokens each; the null row stands for a dummy row with tokens.
  struct Part {
    RowId row;
    int32_t count;
  };
  const ops::StepView& run(const std::vector<Part>& parts) {
    engine::StepPlan plan;
    for (const Part& part : parts) {
      engine::PlanRow row;
      row.row = part.row;
      row.query_len = part.count;
      if (part.row != kNullRow) {
        manager.append(part.row, part.count);
        row.max_seq_len = manager.num_scheduled(part.row);
      }
      plan.rows.push_back(row);
      plan.tokens.resize(plan.tokens.size() + static_cast<size_t>(part.count), 5);
    }
    BZ_CHECK(manager.take_plan(plan.cache));
    const engine::GraphKey key{engine::GraphMode::kNone, kTokens, kRows};
    const engine::StagedStep staged = inputs_.stage(plan, key);
    ops_->prepare(*stream_, memory_.prepare_params(key, inputs_));
    stream_->synchronize();
    inputs_.release(staged.sequence());
    manager.processed(staged.sequence());
    view_ = memory_.view(key);
    for (const Part& part : parts) {
      if (part.row != kNullRow) accept(part.row, manager.num_scheduled(part.row));
    }
    return view_;
  }
  // What sample writes: how many of the row's tokens count.
  void accept(RowId row, int32_t num_tokens) {
    const_cast<ops::RowState*>(memory_.row_state())[row.value()].num_computed = num_tokens;
  }
  // Batch row b and its tokens map to nothing, in any group.
  void expect_null(const ops::StepView& v, int32_t b) const {
    EXPECT_EQ(v.row_index[b], 0);
    EXPECT_EQ(v.seq_len[b], 0);
    for (int32_t g = 0; g < v.num_groups; ++g) {
      EXPECT_EQ(v.groups[g].first_visible[b], 0);
      for (int32_t i = 0; i <= kSpec; ++i)
        EXPECT_EQ(v.groups[g].states[b * v.states_per_row + i], kv::kNullState) << "row " << b;
      for (int32_t t = v.query_start[b]; t < v.query_start[b + 1]; ++t)
        EXPECT_EQ(v.groups[g].slots[t], kv::kPadSlot) << "row " << b << " group " << g << " token " << t;
    }
  }
  void expect_padding(const ops::StepView& v, int32_t live_rows) const {
    for (int32_t b = live_rows; b < v.padded_rows; ++b) {
      EXPECT_EQ(v.query_start[b + 1], v.query_start[live_rows]);
      expect_null(v, b);
    }
    for (int32_t t = v.query_start[v.padded_rows]; t < v.padded_tokens; ++t) {
      EXPECT_EQ(v.token_row[t], -1);
      EXPECT_EQ(v.positions[t], 0);
      for (int32_t g = 0; g < v.num_groups; ++g) EXPECT_EQ(v.groups[g].slots[t], kv::kPadSlot) << t;
    }
  }

 private:
  static constexpr engine::StepLimits kLimits{kTokens, kRows, 1000};
  std::unique_ptr<device::Device> device_;
  const ops::OpTable* ops_;
  engine::StepInputs inputs_;
  engine::StepMemory memory_;
  std::unique_ptr<device::Stream> stream_;
  ops::StepView view_{};

 public:
  kv::CacheManager manager;
};

TEST(PrepareKinds, EveryTokenHasTheSlotsOfTheHostsTables) {
  Steps s;
  const RowId a = s.manager.admit(), b = s.manager.admit();
  s.run({{a, 13}});
  const ops::StepView& v = s.run({{b, 20}, {a, 3}});
  for (int32_t g = 0; g < kNumGroups; ++g) {
    const kv::GroupView host = s.manager.tables().view(GroupId(g));
    for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(v.groups[g].slots[i], kv::write_slot(host, b, i, 20)) << g;
    for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(v.groups[g].slots[20 + i], kv::write_slot(host, a, 13 + i, 16)) << g;
  }
  EXPECT_EQ(v.groups[kWindow].first_visible[0], 0);
  EXPECT_EQ(v.groups[kWindow].first_visible[1], 13 - 6 + 1);
  EXPECT_EQ(v.groups[kFull].first_visible[1], 0);
  for (int32_t i = 0; i <= kSpec; ++i) {
    const kv::BlockId block = s.manager.tables().block(GroupId(kState), b, i);
    EXPECT_NE(block, kv::kNullBlock);
    EXPECT_EQ(v.groups[kState].states[i].value(), block.value());
    EXPECT_EQ(v.groups[kFull].states[i], kv::kNullState);
  }
  s.expect_padding(v, 2);
}

// Attention walks these lists: a token that is missing would have no output, padding that is listed as live would read.
TEST(PrepareKinds, EveryTokenIsListedOnceByWhatItSees) {
  Steps s;
  const RowId a = s.manager.admit(), b = s.manager.admit();
  s.run({{a, 13}});
  const ops::StepView& v = s.run({{b, 33}, {kNullRow, 2}, {a, 3}});
  const auto list = [&](int32_t g, ops::AttentionClass c) {
    const ops::AttentionLists& lists = v.groups[g].attention;
    const auto i = static_cast<int32_t>(c);
    return std::vector(lists.tokens + i * kTokens, lists.tokens + i * kTokens + lists.counts->of_class[i]);
  };
  for (int32_t g = 0; g < kNumGroups; ++g) {
    const auto prompt = list(g, ops::AttentionClass::kPrompt), dead = list(g, ops::AttentionClass::kDead);
    const auto few = list(g, ops::AttentionClass::kShort);
    ASSERT_EQ(prompt.size(), 33u) << g;
    for (int32_t i = 0; i < 33; ++i) {
      EXPECT_EQ(prompt[static_cast<size_t>(i)].token, i);
      EXPECT_EQ(prompt[static_cast<size_t>(i)].sees.table_row, b.value());
      EXPECT_EQ(prompt[static_cast<size_t>(i)].sees.end, i + 1);
    }
    ASSERT_EQ(few.size(), 3u) << g;
    for (int32_t i = 0; i < 3; ++i) {
      const ops::AttentionToken& t = few[static_cast<size_t>(i)];
      EXPECT_EQ(t.token, 35 + i);
      EXPECT_EQ(t.sees.table_row, a.value());
      EXPECT_EQ(t.sees.begin, g == kWindow ? 13 + i - 6 + 1 : 0) << g;
      EXPECT_EQ(t.sees.end, 14 + i);
      EXPECT_EQ(t.sees.fresh, 13);
    }
    ASSERT_EQ(dead.size(), static_cast<size_t>(kTokens - 36)) << g;
    EXPECT_EQ(dead[0].token, 33);  // of the null row
    EXPECT_EQ(dead[2].token, 38);  // padding
    EXPECT_TRUE(list(g, ops::AttentionClass::kLong).empty());
  }
}

TEST(AttentionClass, LongIsWhatSeesMoreThanAWarpAloneCanWalk) {
  kv::GroupView full, window;
  window.window = 100;
  const auto of = [](const kv::GroupView& g, int32_t position, int32_t queries) {
    return ops::attention_class(ops::attention_token(g, 0, 0, 1, position, position), queries);
  };
  EXPECT_EQ(of(full, ops::kShortPositions - 1, 1), ops::AttentionClass::kShort);
  EXPECT_EQ(of(full, ops::kShortPositions, 1), ops::AttentionClass::kLong);
  EXPECT_EQ(of(full, ops::kShortPositions, ops::kPromptQueries), ops::AttentionClass::kPrompt);
  EXPECT_EQ(of(window, 100'000, 1), ops::AttentionClass::kShort);
}

// F07, F08: the batch moves up when a request ends; the last place, and the ended request's row, are null at once.
TEST(PrepareKinds, AMovedOrRemovedRowIsNullBeforeTheNextStep) {
  Steps s;
  const RowId a = s.manager.admit(), b = s.manager.admit(), c = s.manager.admit();
  s.run({{a, 9}, {b, 10}, {c, 11}});
  s.manager.release(a);
  const ops::StepView& v = s.run({{c, 1}, {b, 1}});
  EXPECT_EQ(v.row_index[0], c.value());
  EXPECT_EQ(v.row_index[1], b.value());
  s.expect_padding(v, 2);
  for (int32_t g = 0; g < kNumGroups; ++g) EXPECT_EQ(v.groups[g].view.width[a.value()], 0) << g;
}

// Captured graphs hold addresses: a dummy step's tables are the same arrays, and every row of its batch is null.
TEST(PrepareKinds, DummyTablesAreNullAtTheSameAddress) {
  Steps s;
  const RowId a = s.manager.admit();
  const ops::StepView real = s.run({{a, 12}});
  const ops::StepView dummy = s.run({});
  s.expect_padding(dummy, 0);
  EXPECT_EQ(real.row_index, dummy.row_index);
  for (int32_t g = 0; g < kNumGroups; ++g) {
    EXPECT_EQ(real.groups[g].view.table, dummy.groups[g].view.table);
    EXPECT_EQ(real.groups[g].slots, dummy.groups[g].slots);
    EXPECT_EQ(real.groups[g].states, dummy.groups[g].states);
  }
}

// F02 to F05: dummy rows of R tokens and more would close windows and fill rings, if they had a block.
TEST(PrepareKinds, EveryTokenOfANullRowIsPad) {
  Steps s;
  const RowId a = s.manager.admit();
  s.run({{a, 7}});
  const ops::StepView& mixed = s.run({{kNullRow, 8}, {a, 4}, {kNullRow, 17}, {kNullRow, 1}});
  for (int32_t b : {0, 2, 3}) s.expect_null(mixed, b);
  s.expect_padding(mixed, 4);
  for (int32_t g : {kCompressed, kTail, kQsa, kCompressor}) {
    int32_t written = 0;
    for (int32_t t = 8; t < 12; ++t) written += mixed.groups[g].slots[t] != kv::kPadSlot;
    EXPECT_EQ(written, g == kCompressed ? 1 : 4) << g;  // positions 7 to 10 close one window of four
  }
  const ops::StepView& all_null = s.run({{kNullRow, 8}, {kNullRow, 16}});
  for (int32_t b : {0, 1}) s.expect_null(all_null, b);
  s.expect_padding(all_null, 2);
}

// RING-1: verify steps of 1 + k tokens, any number accepted: what an open window still needs is in its place.
TEST(PrepareKinds, ARingWithSpeculationNeverLosesAnEntryItNeeds) {
  for (int32_t prompt = 1; prompt <= 9; ++prompt) {
    for (int32_t accepted = 0; accepted < 27 * 27; ++accepted) {
      Steps s;
      const RowId row = s.manager.admit();
      std::map<std::pair<int, int64_t>, int32_t> ring;  // (group, slot) -> position stored there
      int32_t length = 0;
      for (int32_t step = 0, choice = accepted; step < 7; ++step, choice /= 3) {
        const int32_t count = step == 0 ? prompt : 1 + kSpec;
        const ops::StepView& v = s.run({{row, count}});
        for (int g : {kTail, kQsa, kCompressor}) {
          std::set<int64_t> now;
          for (int32_t t = 0; t < count; ++t) {
            const kv::SlotId slot = v.groups[g].slots[t];
            if (slot == kv::kPadSlot) continue;
            ASSERT_TRUE(now.insert(slot.value()).second) << "two tokens race for a slot";
            ring[{g, slot.value()}] = length + t;
          }
          const kv::GroupView& view = v.groups[g].view;
          for (int32_t p = length / view.ratio * view.ratio; p < length; ++p) {
            const int64_t slot = kv::entry_slot(view, row, p).value();
            ASSERT_EQ((ring[{g, slot}]), p) << "group " << g << ", prompt " << prompt << ", step " << step;
          }
        }
        const int32_t kept = step == 0 ? prompt : 1 + choice % 3;
        length += kept;
        if (count > kept) s.manager.rollback(row, count - kept);
        s.accept(row, length);
        s.manager.set_processed(row, length);
      }
    }
  }
}

}  // namespace
}  // namespace bz::test
