// The nouns of the cache core, as types that do not mix (docs/glossary.md).
//
//   block   a fixed run of tokens (or one state) of one cache group, named by a BlockId; id 0 is null (PAD-1)
//   slot    where one token's entry lives: block * block_size + offset; kPadSlot means nowhere
//   row     a row of every group's block table, one per request; row 0 is the null row: width 0, for ever
//   group   layers whose entries lie alike in the blocks of one table; several groups may share a table
#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace bz::kv {

using BlockId = StrongId<struct BlockTag, uint32_t>;
using SlotId = StrongId<struct SlotTag, int64_t>;
using StateId = StrongId<struct StateTag, uint32_t>;
using RowId = StrongId<struct RowTag, int32_t>;
using GroupId = StrongId<struct GroupTag, int32_t>;
using ByteOffset = StrongId<struct ByteOffsetTag, int64_t>;

// How much of a padded batch is real. Two types: a count of rows never stands for a count of tokens (PAD-6).
using NumValidRows = StrongId<struct NumValidRowsTag, int32_t>;
using NumValidTokens = StrongId<struct NumValidTokensTag, int32_t>;

inline constexpr BlockId kNullBlock{0u};
inline constexpr StateId kNullState{0u};
inline constexpr RowId kNullRow{0};
inline constexpr SlotId kPadSlot{int64_t{-1}};

inline constexpr int kMaxGroups = 10;

// A change to the device-resident tables: an absolute, idempotent write (PAD-10).
enum class ChangeKind : uint32_t {
  kBlock,     // table[group][row][column] = BlockId(value)
  kWidth,     // width[group][row] = value; 0 makes the row empty (PAD-3)
  kFirst,     // first[group][row] = value: columns below it have left the window
  kRowStart,  // the row begins a request: RowState.num_computed = value, everything else as new
};

struct TableChange {
  ChangeKind kind;
  GroupId group;  // kRowStart: ignored
  RowId row;
  int32_t column;  // kBlock only
  uint32_t value;

  bool operator==(const TableChange&) const = default;
};

// Copy the whole slab of a block before the step runs: copy-on-write (KV-6). `from` stays with its owners. From the
// null block: fill with zeros, which is what it holds (KV-4). A plan's copies may run in any order.
struct BlockCopy {
  BlockId from;
  BlockId to;

  bool operator==(const BlockCopy&) const = default;
};

}  // namespace bz::kv
