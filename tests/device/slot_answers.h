// Everything that kv/slot.h answers about one position of one row, compiled by g++ and by nvcc from this one text.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/slot.h"

namespace bz::test {

// A group's tables, two rows of them, as places in arrays that host and device both hold; and the positions asked for.
struct SlotCase {
  kv::GroupView view;  // without table, width, first
  int32_t first_cell;  // of table
  int32_t first_row;   // of width and first
  int32_t begin, count;
  int32_t seq_end;
  int64_t first_answer;
};
struct SlotArrays {
  const kv::BlockId* cells;
  const int32_t* widths;
  const int32_t* firsts;
};

struct SlotAnswers {
  static constexpr int kPerBlock = 2;  // kernel blocks in a block, where block_size allows
  int64_t write, write_null_row, entry, slot_of, block, state, kernel_block, offset, kernel_offset;
  int32_t local_index, local_length, first_visible;
  int32_t padding;

  bool operator==(const SlotAnswers&) const = default;
};

BZ_HD constexpr SlotAnswers slot_answers(const SlotCase& c, const SlotArrays& arrays, int32_t position) {
  kv::GroupView g = c.view;
  g.table = arrays.cells + c.first_cell;
  g.width = arrays.widths + c.first_row;
  g.first = arrays.firsts + c.first_row;
  const kv::RowId row(1), null_row(0);
  const kv::PageView page{8192, 512, 24, g.block_size};
  const int32_t per_block = g.block_size % SlotAnswers::kPerBlock == 0 ? SlotAnswers::kPerBlock : 1;
  SlotAnswers a{};
  const kv::SlotId written = kv::write_slot(g, row, position, c.seq_end);
  a.write = written.value();
  a.write_null_row = kv::write_slot(g, null_row, position, c.seq_end).value();
  a.entry = kv::entry_slot(g, row, position).value();
  a.slot_of = kv::slot_of(g, row, position).value();
  a.block = kv::block_at(g, row, position).value();
  a.state = kv::state_of(g, row, position).value();
  a.kernel_block = kv::kernel_block_at(g, row, position, per_block);
  a.offset = written.value() < 0 ? -1 : kv::entry_offset(page, written).value();
  a.kernel_offset = kv::kernel_page_offset(page, a.kernel_block, per_block).value();
  a.local_index = kv::local_index(g, position);
  a.local_length = kv::local_length(g, position < 0 ? 0 : position);
  a.first_visible = kv::first_visible(g, position);
  return a;
}

// On the GPU: `answers` holds every case's, from first_answer on.
void slot_answers_on_device(const std::vector<SlotCase>& cases, const std::vector<kv::BlockId>& cells,
                            const std::vector<int32_t>& widths, const std::vector<int32_t>& firsts,
                            std::vector<SlotAnswers>& answers);

}  // namespace bz::test
