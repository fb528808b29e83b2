// slot.h proved: every case of bounded parameters against an oracle that shares no code with it (PAD-2, KV-5).
#include "kv/slot.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace bz::kv {
namespace {

// A table whose every cell, valid or not, holds a block id: what is outside [first, width) must not get through.
struct Tables {
  std::vector<BlockId> blocks;
  std::vector<int32_t> width, first;
  GroupView view;

  Tables(int32_t rows, int32_t columns, int32_t block_size, int32_t max_position) {
    for (int32_t i = 0; i < rows * columns; ++i) blocks.emplace_back(static_cast<uint32_t>(i + 1));
    width.assign(static_cast<size_t>(rows), 0);
    first.assign(static_cast<size_t>(rows), 0);
    view = {blocks.data(), width.data(), first.data(), rows, columns, block_size, max_position};
  }
};

TEST(Slot, GenericIsProvedOverBoundedParameters) {
  int64_t cases = 0;
  for (int32_t bs = 1; bs <= 5; ++bs) {
    for (int32_t columns = 1; columns <= 4; ++columns) {
      for (int32_t max_position = 1; max_position <= bs * columns + 1; ++max_position) {
        Tables t(3, columns, bs, max_position);
        for (int32_t width = 0; width <= columns + 1; ++width) {
          for (int32_t first = 0; first <= width; ++first) {
            t.width = {7, width, 0};  // a broken null row: its width must not be believed
            t.first = {0, first, 0};
            for (int32_t null_column = -1; null_column < columns; ++null_column) {
              const auto null_cell = static_cast<size_t>(columns + std::max(null_column, 0));
              const BlockId saved = t.blocks[null_cell];
              if (null_column >= 0) t.blocks[null_cell] = kNullBlock;
              std::set<int64_t> live;
              for (int32_t row = -1; row <= 3; ++row) {
                for (int32_t pos = -2; pos <= bs * (columns + 1); ++pos, ++cases) {
                  const SlotId slot = slot_of(t.view, RowId(row), pos);
                  // The oracle: walk the row's blocks and count entries.
                  int64_t expected = -1;
                  if (row == 1 && pos >= 0 && pos < max_position) {
                    int32_t p = pos;
                    for (int32_t c = 0; c < std::min(width, columns); ++c, p -= bs) {
                      const uint32_t id = t.blocks[static_cast<size_t>(columns + c)].value();
                      if (p < bs && p >= 0 && c >= first && id != 0) expected = int64_t{id} * bs + p;
                    }
                  }
                  ASSERT_EQ(slot.value(), expected) << "bs " << bs << " row " << row << " pos " << pos;
                  if (slot == kPadSlot) continue;
                  ASSERT_GE(slot.value(), bs);  // not in block 0
                  ASSERT_TRUE(live.insert(slot.value()).second) << "two positions share slot " << slot.value();
                }
              }
              if (null_column >= 0) t.blocks[null_cell] = saved;
            }
          }
        }
      }
    }
  }
  std::printf("slot_of, generic: %lld cases\n", static_cast<long long>(cases));
}

TEST(Slot, OffsetsFollowTheStride) {
  const PageView p{4096, 256, 48, 16};
  for (int64_t block : {1, 2, 1000, 3'000'000}) {
    for (int64_t i = 0; i < 16; ++i) {
      const ByteOffset offset = entry_offset(p, SlotId(block * 16 + i));
      EXPECT_EQ(offset.value(), block * 4096 + 256 + i * 48);
    }
    EXPECT_EQ(page_offset(p, BlockId(static_cast<uint32_t>(block))).value(), block * 4096 + 256);
  }
}

// The largest ids and the longest contexts fit the types.
TEST(Slot, LargestIdsFit) {
  const std::vector<BlockId> blocks = {kNullBlock, BlockId(4294967295u)};
  const std::vector<int32_t> width = {0, 1}, first = {0, 0};
  const GroupView g{blocks.data(), width.data(), first.data(), 2, 1, 1 << 20, 1 << 20};
  const SlotId slot = slot_of(g, RowId(1), (1 << 20) - 1);
  EXPECT_EQ(slot.value(), 4294967295 * (int64_t{1} << 20) + (1 << 20) - 1);
  EXPECT_GT(page_offset({1 << 21, 0, 1, 1 << 20}, blocks[1]).value(), int64_t{1} << 52);
}

constexpr bool null_row_is_pad() {
  const BlockId table[2] = {BlockId(5u), BlockId(6u)};
  const int32_t width[2] = {1, 1}, first[2] = {0, 0};
  const GroupView g{table, width, first, 2, 1, 16, 16};
  return slot_of(g, kNullRow, 0) == kPadSlot && slot_of(g, RowId(1), 3) == SlotId(int64_t{6 * 16 + 3});
}
#if !defined(BZ_MUTATIONS)  // with them nothing of slot.h is constant
static_assert(null_row_is_pad());
#endif

}  // namespace
}  // namespace bz::kv
