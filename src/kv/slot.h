// Block -> slot, and slot -> byte offset: THE one address function (PAD-2, KV-5).
//
// Nothing else in Blockzero turns a block into a slot or a state index. The functions are constexpr and compiled for
// host and device; each takes one GroupView, never loose sizes. They answer kPadSlot / kNullBlock / kNullState for the
// null row, the null block, a column the row does not own, and a position that is negative or past the limit.
// write_slot is what prepare derives for every token of a step; entry_slot is what a kernel reads.
#pragma once

#include <cstdint>

#include "base/mutation.h"
#include "kv/types.h"

namespace bz::kv {

// How a group's entries lie in the blocks of a row. One per group, fixed: write_slot chooses by it, callers never do.
enum class SlotForm : int32_t {
  kTokens,      // entry = position
  kWindowed,    // entry = position; the table's columns are reused modulo max_blocks_per_row
  kCompressed,  // entry = position / ratio, written by the token that closes it
  kRing,        // entry = position modulo block_size, in the row's one block
  kState,       // no slots: a column is a state
  kCross,       // entry = position in the encoder's output; no decoder token writes it
};

// One group's block tables, as prepare and the attention kernels see them (device pointers on a device).
struct GroupView {
  const BlockId* table;  // [num_rows][max_blocks_per_row]
  const int32_t* width;  // [num_rows] columns in use; 0: the row is empty
  const int32_t* first;  // [num_rows] first column still owned; columns below have left the window
  int32_t num_rows;
  int32_t max_blocks_per_row;  // columns of the table
  int32_t block_size;          // entries in a block; of a ring: its capacity
  int32_t max_position;        // positions lie in [0, max_position)

  SlotForm form = SlotForm::kTokens;
  int32_t ratio = 1;          // kCompressed: tokens in an entry
  int32_t base_column = 0;    // of entry 0: columns below hold sinks, the same blocks in every row
  int32_t cp_world = 1;       // context parallel ranks that share the tokens (kTokens only)
  int32_t cp_rank = 0;        // of this rank
  int32_t cp_interleave = 1;  // consecutive tokens on one rank; divides block_size
  int32_t window = 0;         // kWindowed: tokens a query sees, itself included, or tokens in a chunk
  bool chunked = false;       // kWindowed: the window is the query's own chunk
  GroupId group{0};
};

// Where the entries of one tensor of one layer (its K, or its V) lie inside a block. Bytes.
struct PageView {
  int64_t block_stride;  // from one block id to the next: the slab, all layers together
  int64_t offset;        // of this tensor's page inside the slab
  int64_t entry_bytes;   // one token's entry
  int32_t block_size;    // entries in a block
  GroupId group{0};
};

// By value: device code cannot bind a reference to kNullBlock.
BZ_HD constexpr bool is_null(BlockId block) { return block.value() == 0; }

// The block in a column of a row; kNullBlock for whatever the row does not own.
BZ_HD constexpr BlockId block_at(const GroupView& g, RowId row, int32_t column) {
  if (row.value() <= kNullRow.value() || row.value() >= g.num_rows) return kNullBlock;
  const int32_t width = g.width[row.value()], first = g.first[row.value()];  // loaded together
  if (column < 0 || column < first || column >= width) return kNullBlock;
  const int64_t start = static_cast<int64_t>(row.value()) * g.max_blocks_per_row;
  if (g.form == SlotForm::kWindowed) {
    if (column < width - g.max_blocks_per_row) return kNullBlock;  // its cell holds a later column
    return g.table[start + column % g.max_blocks_per_row];
  }
  if (column >= g.max_blocks_per_row) return kNullBlock;
  return g.table[start + column];
}

// The slot at an offset inside a block: the null test, in one place (F01 to F05).
BZ_HD constexpr SlotId slot_in(const GroupView& g, BlockId block, int32_t offset) {
  if (is_null(block) && !mutated(Mutation::kSlotWithoutNullTest)) return kPadSlot;
  return SlotId(static_cast<int64_t>(block.value()) * g.block_size + offset);
}

// This rank's index of a token position, or -1 if another rank has it. Context parallel.
BZ_HD constexpr int32_t local_index(const GroupView& g, int32_t position) {
  const int32_t turn = g.cp_interleave * g.cp_world;
  if (position < 0 || position % turn / g.cp_interleave != g.cp_rank) return -1;
  return position / turn * g.cp_interleave + position % g.cp_interleave;
}

// How many of a row's first `length` tokens this rank has. Context parallel.
BZ_HD constexpr int32_t local_length(const GroupView& g, int32_t length) {
  const int32_t turn = g.cp_interleave * g.cp_world;
  const int32_t rest = length % turn - g.cp_rank * g.cp_interleave;
  return length / turn * g.cp_interleave + (rest < 0 ? 0 : rest > g.cp_interleave ? g.cp_interleave : rest);
}

// The slot of entry `entry` of a row: of a position (kTokens, kWindowed, kRing, kCross) or of a compressed entry.
BZ_HD constexpr SlotId entry_slot(const GroupView& g, RowId row, int32_t entry) {
  const int32_t limit = g.form == SlotForm::kCompressed ? g.max_position / g.ratio : g.max_position;
  if (entry < 0 || entry >= limit || g.form == SlotForm::kState) return kPadSlot;
  if (g.form == SlotForm::kRing) return slot_in(g, block_at(g, row, 0), entry % g.block_size);
  const int32_t local = g.cp_world == 1 ? entry : local_index(g, entry);
  if (local < 0) return kPadSlot;
  return slot_in(g, block_at(g, row, g.base_column + local / g.block_size), local % g.block_size);
}

// Where a token of this step writes its entry. seq_end: the row's length after the step, one past its last position.
// A compressed group writes at the token that closes an entry; of a chunk longer than a ring only the last block_size
// tokens map, so that no two tokens of a step race for a slot (RING-1).
BZ_HD constexpr SlotId write_slot(const GroupView& g, RowId row, int32_t position, int32_t seq_end) {
  if (position < 0 || position >= g.max_position || position >= seq_end) return kPadSlot;
  switch (g.form) {
    case SlotForm::kTokens:
    case SlotForm::kWindowed: return entry_slot(g, row, position);
    case SlotForm::kCompressed:
      return (position + 1) % g.ratio == 0 ? entry_slot(g, row, position / g.ratio) : kPadSlot;
    case SlotForm::kRing:
      if (position < seq_end - g.block_size && !mutated(Mutation::kRingWithoutKeepRule)) return kPadSlot;
      return entry_slot(g, row, position);
    case SlotForm::kState:
    case SlotForm::kCross: break;
  }
  return kPadSlot;
}

// The first position that a query at `position` can see. window 0: all of them.
BZ_HD constexpr int32_t first_in_window(int32_t window, bool chunked, int32_t position) {
  if (window == 0) return 0;
  if (chunked) return position / window * window;
  return position < window ? 0 : position - window + 1;
}
BZ_HD constexpr int32_t first_visible(const GroupView& g, int32_t position) {
  return first_in_window(g.window, g.chunked, position);
}

// The slot of a position of a row whose step ends with it.
BZ_HD constexpr SlotId slot_of(const GroupView& g, RowId row, int32_t position) {
  return write_slot(g, row, position, position + 1);
}

// The state in a column of a row: column i holds the state after token i of a verify step (STATE-1).
BZ_HD constexpr StateId state_of(const GroupView& g, RowId row, int32_t column) {
  return g.form == SlotForm::kState ? StateId(block_at(g, row, column).value()) : kNullState;
}

// Byte offset of an entry from the base of the slabs. REQUIRES: slot is not kPadSlot.
BZ_HD constexpr ByteOffset entry_offset(const PageView& p, SlotId slot) {
  if (slot.value() >= 0 && mutated(Mutation::kDenseStride)) return ByteOffset(p.offset + slot.value() * p.entry_bytes);
  // A 64-bit division costs a GPU ten times a 32-bit one. A negative slot, a fault already, keeps its sign: it must
  // land in the unmapped granule below block 0, not somewhere else.
  if (static_cast<uint64_t>(slot.value()) <= INT32_MAX) {
    const auto small = static_cast<uint32_t>(slot.value()), size = static_cast<uint32_t>(p.block_size);
    return ByteOffset(static_cast<int64_t>(small / size) * p.block_stride + p.offset +
                      static_cast<int64_t>(small % size) * p.entry_bytes);
  }
  return ByteOffset(slot.value() / p.block_size * p.block_stride + p.offset +
                    slot.value() % p.block_size * p.entry_bytes);
}

// Byte offset of a block's page from the base of the slabs.
BZ_HD constexpr ByteOffset page_offset(const PageView& p, BlockId block) {
  return ByteOffset(static_cast<int64_t>(block.value()) * p.block_stride + p.offset);
}

// Kernels whose own block is smaller: `per_block` of them in each of ours, ids block * per_block + i. All kernel blocks
// of the null block are null; the answer for anything null is 0.
BZ_HD constexpr int64_t kernel_block_at(const GroupView& g, RowId row, int32_t kernel_column, int32_t per_block) {
  const BlockId block = kernel_column < 0 ? kNullBlock : block_at(g, row, kernel_column / per_block);
  if (is_null(block)) return 0;
  return static_cast<int64_t>(block.value()) * per_block + kernel_column % per_block;
}
BZ_HD constexpr bool is_null_kernel_block(int64_t id, int32_t per_block) { return id < per_block; }
BZ_HD constexpr ByteOffset kernel_page_offset(const PageView& p, int64_t id, int32_t per_block) {
  const int64_t kernel_page_bytes = p.block_size / per_block * p.entry_bytes;
  return ByteOffset(id / per_block * p.block_stride + p.offset + id % per_block * kernel_page_bytes);
}

}  // namespace bz::kv
