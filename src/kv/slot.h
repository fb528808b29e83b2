// Block -> slot, and slot -> byte offset: THE one address function (PAD-2, KV-5).
//
// Nothing else in Blockzero turns a block into a slot or a state index. The functions are constexpr and compiled for
// host and device; each takes one GroupView, never loose sizes. They answer kPadSlot / kNullBlock for the null row,
// the null block, a column outside the row's [first, width), and a position that is negative or past the limit.
#pragma once

#include <cstdint>

#include "base/mutation.h"
#include "kv/types.h"

namespace bz::kv {

// One group's block tables, as prepare and the attention kernels see them (device pointers on a device).
struct GroupView {
  const BlockId* table;  // [num_rows][max_blocks_per_row]
  const int32_t* width;  // [num_rows] columns in use; 0: the row is empty
  const int32_t* first;  // [num_rows] first column still owned; columns below have left the window
  int32_t num_rows;
  int32_t max_blocks_per_row;  // columns of the table
  int32_t block_size;          // entries in a block
  int32_t max_position;        // positions lie in [0, max_position)
};

// Where the entries of one tensor of one layer (its K, or its V) lie inside a block. Bytes.
struct PageView {
  int64_t block_stride;  // from one block id to the next: the slab, all layers together
  int64_t offset;        // of this tensor's page inside the slab
  int64_t entry_bytes;   // one token's entry
  int32_t block_size;    // entries in a block
};

// The block in a column of a row; kNullBlock for whatever the row does not own.
BZ_HD constexpr BlockId block_at(const GroupView& g, RowId row, int32_t column) {
  if (row.value() <= kNullRow.value() || row.value() >= g.num_rows) return kNullBlock;
  if (column < g.first[row.value()] || column >= g.width[row.value()] || column >= g.max_blocks_per_row)
    return kNullBlock;
  return g.table[static_cast<int64_t>(row.value()) * g.max_blocks_per_row + column];
}

// The slot of a position of a row, generic form (one entry per token).
BZ_HD constexpr SlotId slot_of(const GroupView& g, RowId row, int32_t position) {
  if (position < 0 || position >= g.max_position) return kPadSlot;
  const BlockId block = block_at(g, row, position / g.block_size);
  if (block == kNullBlock && !mutated(Mutation::kSlotWithoutNullTest)) return kPadSlot;
  return SlotId(static_cast<int64_t>(block.value()) * g.block_size + position % g.block_size);
}

// Byte offset of an entry from the base of the slabs. REQUIRES: slot is not kPadSlot.
BZ_HD constexpr ByteOffset entry_offset(const PageView& p, SlotId slot) {
  return ByteOffset(slot.value() / p.block_size * p.block_stride + p.offset +
                    slot.value() % p.block_size * p.entry_bytes);
}

// Byte offset of a block's page from the base of the slabs.
BZ_HD constexpr ByteOffset page_offset(const PageView& p, BlockId block) {
  return ByteOffset(static_cast<int64_t>(block.value()) * p.block_stride + p.offset);
}

}  // namespace bz::kv
