// Every form of slot.h against an oracle that shares no code with it: null => pad, in range, injective among the live
// tokens of a step, equal to what a plain simulation of the cache says (PAD-2, RING-1, RING-2, KV-5).
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "kv/slot.h"
#include "kv/spec.h"

namespace bz::kv {
namespace {

// Two rows of garbage ids (the null row's too), of which a test sets row 1.
struct Table {
  std::vector<BlockId> cells;
  std::vector<int32_t> width{5, 0}, first{0, 0};
  GroupView view{};

  Table(SlotForm form, int32_t columns, int32_t block_size, int32_t max_position) {
    for (int32_t i = 0; i < 2 * columns; ++i) cells.emplace_back(static_cast<uint32_t>(900 + i));
    view = {cells.data(), width.data(), first.data(), 2, columns, block_size, max_position, form};
  }
  BlockId& cell(int32_t i) { return cells[static_cast<size_t>(view.max_blocks_per_row + i)]; }
};
const RowId kRow(1);

int64_t slot_id(uint32_t block, int32_t bs, int32_t offset) { return int64_t{block} * bs + offset; }
void report(const char* what, int64_t cases) { std::printf("%s: %lld cases\n", what, static_cast<long long>(cases)); }

TEST(SlotKinds, Windowed) {
  int64_t cases = 0;
  for (int32_t bs = 1; bs <= 4; ++bs) {
    for (int32_t cells = 1; cells <= 4; ++cells) {
      for (int32_t width = 0; width <= 4 * cells + 1; ++width) {
        for (int32_t first = 0; first <= width; ++first) {
          for (int32_t hole = -1; hole < cells; ++hole) {
            Table t(SlotForm::kWindowed, cells, bs, bs * (width + 2));
            t.width[1] = width;
            t.first[1] = first;
            // The oracle: columns arrive one by one, each in the next cell; the older ones there are overwritten.
            std::map<int32_t, uint32_t> live;
            for (int32_t c = 0; c < width; ++c) {
              t.cell(c % cells) = BlockId(static_cast<uint32_t>(c + 1));
              live.erase(c - cells);
              if (c >= first) live[c] = static_cast<uint32_t>(c + 1);
            }
            if (hole >= 0) {
              t.cell(hole) = kNullBlock;
              std::erase_if(live, [&](const auto& e) { return e.first % cells == hole; });
            }
            std::set<int64_t> seen;
            for (int32_t pos = -1; pos <= bs * (width + 2); ++pos, ++cases) {
              const auto it = pos < 0 ? live.end() : live.find(pos / bs);
              const int64_t expected = it == live.end() ? -1 : slot_id(it->second, bs, pos % bs);
              ASSERT_EQ(write_slot(t.view, kRow, pos, bs * (width + 2)).value(), expected);
              ASSERT_EQ(entry_slot(t.view, kRow, pos).value(), expected);
              ASSERT_EQ(slot_of(t.view, kNullRow, pos), kPadSlot);
              ASSERT_TRUE(expected < 0 || seen.insert(expected).second);
            }
          }
        }
      }
    }
  }
  report("windowed", cases);
}

TEST(SlotKinds, Compressed) {
  int64_t cases = 0;
  for (int32_t ratio : {1, 2, 3, 4, 8, 128}) {
    for (int32_t bs = 1; bs <= 4; ++bs) {
      for (int32_t columns = 1; columns <= 3; ++columns) {
        for (int32_t width = 0; width <= columns; ++width) {
          for (int32_t null_column = -1; null_column < columns; ++null_column) {
            const int32_t tokens = ratio * bs * columns;
            Table t(SlotForm::kCompressed, columns, bs, tokens);
            t.view.ratio = ratio;
            t.width[1] = width;
            if (null_column >= 0) t.cell(null_column) = kNullBlock;
            // The oracle: tokens gather; the one that makes `ratio` of them writes the next entry.
            int32_t gathered = 0, entries = 0;
            std::set<int64_t> seen;
            for (int32_t pos = 0; pos < tokens + ratio; ++pos, ++cases) {
              int64_t expected = -1;
              if (++gathered == ratio) {
                gathered = 0;
                const int32_t column = entries / bs;
                const bool owned = column < width && column != null_column;
                if (owned) expected = slot_id(t.cell(column).value(), bs, entries % bs);
                ASSERT_EQ(entry_slot(t.view, kRow, entries).value(), expected);
                ++entries;
              }
              ASSERT_EQ(write_slot(t.view, kRow, pos, tokens + ratio).value(), expected);
              ASSERT_EQ(write_slot(t.view, kNullRow, pos, tokens + ratio), kPadSlot);
              ASSERT_TRUE(expected < 0 || (expected >= bs && seen.insert(expected).second));
            }
            ASSERT_EQ(entry_slot(t.view, kRow, -1), kPadSlot);
          }
        }
      }
    }
  }
  report("compressed", cases);
}

// Groups that share a table: every entry lies in the block of the tokens it pools, a ring in the block of the row's
// first state, and null stays pad for both.
TEST(SlotKinds, GroupsThatShareATableNameTheSameBlocks) {
  int64_t cases = 0;
  for (int32_t ratio : {1, 2, 3, 4, 8, 128}) {
    for (int32_t entries = 1; entries <= 4; ++entries) {
      for (int32_t columns = 1; columns <= 3; ++columns) {
        for (int32_t width = 0; width <= columns; ++width) {
          for (int32_t null_column = -1; null_column < columns; ++null_column) {
            const int32_t block_tokens = ratio * entries, tokens = block_tokens * columns;
            Table t(SlotForm::kTokens, columns, block_tokens, tokens);
            t.width[1] = width;
            if (null_column >= 0) t.cell(null_column) = kNullBlock;
            GroupView pooled = t.view;
            pooled.form = SlotForm::kCompressed;
            pooled.block_size = entries;
            pooled.ratio = ratio;
            std::set<int64_t> seen;
            for (int32_t pos = ratio - 1; pos < tokens; pos += ratio, ++cases) {
              const int64_t token = write_slot(t.view, kRow, pos, tokens).value();
              const int64_t entry = write_slot(pooled, kRow, pos, tokens).value();
              ASSERT_EQ(entry < 0, token < 0);
              ASSERT_EQ(entry_slot(pooled, kRow, pos / ratio).value(), entry);
              ASSERT_TRUE(entry < 0 || entry / entries == token / block_tokens);
              ASSERT_TRUE(entry < 0 || seen.insert(entry).second);
              ASSERT_EQ(write_slot(pooled, kNullRow, pos, tokens), kPadSlot);
            }
          }
        }
      }
    }
  }
  for (int32_t columns = 1; columns <= 9; ++columns) {
    for (int32_t capacity = 1; capacity <= 16; ++capacity) {
      for (int32_t width = 0; width <= columns; ++width) {
        Table t(SlotForm::kState, columns, 1, 64);
        t.width[1] = width;
        GroupView ring = t.view;
        ring.form = SlotForm::kRing;
        ring.block_size = capacity;
        for (int32_t pos = 0; pos < 64; ++pos, ++cases) {
          const int64_t slot = write_slot(ring, kRow, pos, pos + 1).value();
          ASSERT_EQ(slot < 0, width == 0);
          ASSERT_TRUE(slot < 0 || slot / capacity == state_of(t.view, kRow, 0).value());
          ASSERT_EQ(write_slot(ring, kNullRow, pos, pos + 1), kPadSlot);
        }
      }
    }
  }
  report("groups that share a table", cases);
}

// Of a step's tokens, those that survive in the ring get a slot, the others pad: as if written one after another.
TEST(SlotKinds, Ring) {
  int64_t cases = 0;
  for (int32_t capacity = 1; capacity <= 12; ++capacity) {
    for (int32_t start = 0; start <= 3 * capacity + 1; ++start) {
      for (int32_t length = 1; length <= 2 * capacity + 3; ++length) {
        for (uint32_t block : {0u, 7u}) {
          Table t(SlotForm::kRing, 1, capacity, 1000);
          t.width[1] = 1;
          t.cell(0) = BlockId(block);
          std::map<int32_t, int32_t> ring;
          for (int32_t pos = start; pos < start + length; ++pos) ring[pos % capacity] = pos;
          std::set<int64_t> seen;
          for (int32_t pos = start; pos < start + length; ++pos, ++cases) {
            const bool survives = block != 0 && ring[pos % capacity] == pos;
            const int64_t expected = survives ? slot_id(block, capacity, pos % capacity) : -1;
            const SlotId slot = write_slot(t.view, kRow, pos, start + length);
            ASSERT_EQ(slot.value(), expected) << capacity << " " << start << " " << length << " " << pos;
            ASSERT_TRUE(expected < 0 || seen.insert(expected).second) << "two tokens race (F20)";
            ASSERT_EQ(write_slot(t.view, kNullRow, pos, start + length), kPadSlot);
          }
          t.width[1] = 0;
          ASSERT_EQ(write_slot(t.view, kRow, start, start + length), kPadSlot);
        }
      }
    }
  }
  report("ring", cases);
}

// Verify steps of 1 + k tokens, every sequence of four acceptances: whenever a token of a step closes a window, the
// rows of the window (and of the one before, where windows overlap) that are older than the step are still in the ring.
// Returns the cases, or nothing if an entry was lost.
std::optional<int64_t> never_loses(int32_t ratio, bool overlap, int32_t capacity, int32_t k) {
  Table t(SlotForm::kRing, 1, capacity, 100000);
  t.width[1] = 1;
  t.cell(0) = BlockId(3u);
  int64_t cases = 0;
  bool lost = false;
  const std::function<void(std::map<int64_t, int32_t>, int32_t, int)> step = [&](std::map<int64_t, int32_t> ring,
                                                                                 int32_t start, int depth) {
    if (depth == 4 || lost) return;
    const int32_t end = start + 1 + k;
    const auto all_there = [&] {
      for (int32_t pos = start; pos < end; ++pos) {
        if ((pos + 1) % ratio != 0) continue;
        for (int32_t need = std::max(0, pos + 1 - (overlap ? 2 : 1) * ratio); need < start; ++need, ++cases) {
          const auto it = ring.find(entry_slot(t.view, kRow, need).value());
          if (it == ring.end() || it->second != need) return false;
        }
      }
      return true;
    };
    // Before the step's writes and after: a kernel may read old rows while other threads write new ones.
    lost = lost || !all_there();
    for (int32_t pos = start; pos < end; ++pos) {
      const SlotId slot = write_slot(t.view, kRow, pos, end);
      if (slot != kPadSlot) ring[slot.value()] = pos;
    }
    lost = lost || !all_there();
    for (int32_t accepted = 1; accepted <= 1 + k; ++accepted) step(ring, start + accepted, depth + 1);
  };
  for (int32_t prompt = 0; prompt < 2 * ratio * 2; ++prompt) {
    std::map<int64_t, int32_t> ring;  // after a prefill of `prompt` tokens in one chunk
    for (int32_t pos = 0; pos < prompt; ++pos) {
      const SlotId slot = write_slot(t.view, kRow, pos, prompt);
      if (slot != kPadSlot) ring[slot.value()] = pos;
    }
    step(ring, prompt, 0);
  }
  if (lost) return std::nullopt;
  return cases;
}

TEST(SlotKinds, RingsNeverLoseAnEntryTheyNeed) {
  int64_t cases = 0;
  const auto prove = [&](int32_t ratio, bool overlap, int32_t capacity, int32_t k) {
    const auto n = never_loses(ratio, overlap, capacity, k);
    ASSERT_TRUE(n.has_value()) << "ratio " << ratio << " capacity " << capacity << " k " << k;
    cases += *n;
  };
  for (int32_t k = 0; k <= 8; ++k) {
    prove(2, false, compressor_ring_v41(k), k);
    prove(4, false, pool_ring(4, k), k);
    prove(4, false, qsa_ring(4, k, 64), k);
    prove(4, true, compressor_ring_v4(4, true, k), k);
    if (k <= 4) prove(8, false, compressor_ring_v4(8, false, k), k);
  }
  report("rings under speculation", cases);
  // F19: a ring of R rows is too small as soon as there is speculation.
  for (int32_t k = 1; k <= 8; ++k) EXPECT_FALSE(never_loses(4, false, 4, k).has_value()) << k;
}

TEST(SlotKinds, RingCapacitiesOfTheModels) {
  EXPECT_EQ(compressor_ring_v41(0), 8);
  EXPECT_EQ(compressor_ring_v41(6), 8);
  EXPECT_EQ(compressor_ring_v41(7), 16);
  EXPECT_EQ(pool_ring(4, 0), 4);
  EXPECT_EQ(pool_ring(4, 1), 8);
  EXPECT_EQ(pool_ring(4, 5), 12);
  EXPECT_EQ(qsa_ring(4, 5, 64), 16);  // 12 does not divide 64
  EXPECT_EQ(compressor_ring_v4(4, true, 0), 8);
  EXPECT_EQ(compressor_ring_v4(128, false, 1), 129);
}

TEST(SlotKinds, ContextParallel) {
  int64_t cases = 0;
  for (int32_t world = 1; world <= 4; ++world) {
    for (int32_t interleave = 1; interleave <= 4; ++interleave) {
      for (int32_t bs = interleave; bs <= 8; bs += interleave) {
        const int32_t tokens = bs * world * 3;
        // The oracle: tokens are dealt out like cards, `interleave` at a time.
        std::vector<std::vector<int32_t>> hands(static_cast<size_t>(world));
        for (int32_t pos = 0; pos < tokens; ++pos) hands[static_cast<size_t>(pos / interleave % world)].push_back(pos);
        for (int32_t rank = 0; rank < world; ++rank) {
          Table t(SlotForm::kTokens, 3, bs, tokens);
          t.view.cp_world = world;
          t.view.cp_rank = rank;
          t.view.cp_interleave = interleave;
          t.width[1] = 3;
          const std::vector<int32_t>& hand = hands[static_cast<size_t>(rank)];
          int32_t held = 0;
          for (int32_t pos = 0; pos < tokens; ++pos, ++cases) {
            ASSERT_EQ(local_length(t.view, pos), held);
            const bool mine = held < static_cast<int32_t>(hand.size()) && hand[static_cast<size_t>(held)] == pos;
            ASSERT_EQ(local_index(t.view, pos), mine ? held : -1);
            const int64_t expected = mine ? slot_id(t.cell(held / bs).value(), bs, held % bs) : -1;
            ASSERT_EQ(write_slot(t.view, kRow, pos, tokens).value(), expected);
            ASSERT_EQ(write_slot(t.view, kNullRow, pos, tokens), kPadSlot);
            held += mine;
          }
        }
      }
    }
  }
  report("context parallel", cases);
}

TEST(SlotKinds, SinksStateAndCross) {
  int64_t cases = 0;
  for (int32_t bs = 1; bs <= 3; ++bs) {
    for (int32_t base = 0; base <= 2; ++base) {
      Table t(SlotForm::kTokens, 4, bs, bs * 4);
      t.view.base_column = base;
      t.width[1] = 4;
      for (int32_t pos = 0; pos < bs * 4; ++pos, ++cases) {
        const int32_t column = base + pos / bs;
        const int64_t expected = column < 4 ? slot_id(t.cell(column).value(), bs, pos % bs) : -1;
        ASSERT_EQ(slot_of(t.view, kRow, pos).value(), expected);
      }
    }
  }
  for (int32_t width = 0; width <= 9; ++width) {
    Table t(SlotForm::kState, 9, 1, 1000);
    t.width[1] = width;
    for (int32_t column = -1; column <= 10; ++column, ++cases) {
      const bool owned = column >= 0 && column < width;
      ASSERT_EQ(state_of(t.view, kRow, column).value(), owned ? t.cell(column).value() : 0);
      ASSERT_EQ(state_of(t.view, kNullRow, column), kNullState);
      ASSERT_EQ(slot_of(t.view, kRow, column), kPadSlot);
      ASSERT_EQ(entry_slot(t.view, kRow, column), kPadSlot);
    }
  }
  Table cross(SlotForm::kCross, 2, 4, 7);
  cross.width[1] = 2;
  for (int32_t pos = -1; pos <= 9; ++pos, ++cases) {
    ASSERT_EQ(slot_of(cross.view, kRow, pos), kPadSlot);  // no decoder token writes it
    const bool there = pos >= 0 && pos < 7;
    ASSERT_EQ(entry_slot(cross.view, kRow, pos).value(), there ? slot_id(cross.cell(pos / 4).value(), 4, pos % 4) : -1);
    ASSERT_EQ(state_of(cross.view, kRow, 0), kNullState);
  }
  report("sinks, states, cross", cases);
}

TEST(SlotKinds, KernelBlocks) {
  int64_t cases = 0;
  for (int32_t per_block = 1; per_block <= 8; per_block *= 2) {
    const int32_t bs = 16;
    Table t(SlotForm::kTokens, 3, bs, bs * 3);
    t.width[1] = 3;
    t.cell(1) = kNullBlock;
    const PageView page{8192, 512, 24, bs};
    for (int32_t pos = 0; pos < bs * 3; ++pos, ++cases) {
      const int32_t kernel_bs = bs / per_block;
      const int64_t id = kernel_block_at(t.view, kRow, pos / kernel_bs, per_block);
      const SlotId slot = slot_of(t.view, kRow, pos);
      ASSERT_EQ(is_null_kernel_block(id, per_block), slot == kPadSlot);
      ASSERT_TRUE(is_null_kernel_block(kernel_block_at(t.view, kNullRow, pos / kernel_bs, per_block), per_block));
      if (slot == kPadSlot) continue;
      // The same byte, by either way (KV-5).
      ASSERT_EQ(kernel_page_offset(page, id, per_block).value() + pos % kernel_bs * page.entry_bytes,
                entry_offset(page, slot).value());
    }
    for (int64_t id = 0; id < per_block; ++id) ASSERT_TRUE(is_null_kernel_block(id, per_block));
    ASSERT_FALSE(is_null_kernel_block(per_block, per_block));
  }
  report("kernel blocks", cases);
}

}  // namespace
}  // namespace bz::kv
