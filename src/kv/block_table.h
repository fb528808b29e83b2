// BlockTables: the host's block tables. Row 0 is the null row: width 0, never claimed (PAD-3). A table has the id of
// the group that owns it; groups that share it (GroupSpec::table_of) only look through it.
//
// Owned by CacheManager; not thread-safe. Every write returns through `changes` as the absolute TableChange that brings
// a device's copy to the same state (PAD-10); there is no other way to write.
//
// Invariants
//   1. Row 0 is never claimed; its columns are null, its widths and firsts 0.
//   2. Columns outside [first, width) of a row hold kNullBlock on the host.
//   3. A row that is not claimed has width 0 in every group.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/touch.h"
#include "kv/rules.h"
#include "kv/slot.h"
#include "kv/spec.h"
#include "kv/types.h"

namespace bz::kv {

struct TableShape {
  GroupSpec spec;
  int32_t max_columns = 0;   // columns of the table
  int32_t max_position = 0;  // positions lie in [0, max_position)

  bool operator==(const TableShape&) const = default;
};

// A group's tables as the device functions see them; the arrays may be a device's.
GroupView view_of(const TableShape& shape, GroupId group, int32_t num_rows, const BlockId* table, const int32_t* width,
                  const int32_t* first);

class BlockTables {
  struct Table;

 public:
  // REQUIRES: num_rows >= 2 (the null row and one more), 1 to kMaxGroups shapes, owners of tables first.
  BlockTables(int32_t num_rows, const std::vector<TableShape>& shapes);

  int32_t num_rows() const { return num_rows_; }
  int32_t num_tables() const { return num_tables_; }
  int32_t max_columns(GroupId group) const { return table(group).columns; }
  int32_t num_free_rows() const { return static_cast<int32_t>(free_rows_.size()); }
  bool is_claimed(RowId row) const { return claimed_[index(row)] != 0; }

  // REQUIRES: num_free_rows() > 0.
  RowId claim_row();
  // Nulls every column on the host, and writes width 0 (and first 0) in every group as changes.
  void release_row(RowId row, std::vector<TableChange>& changes);

  // The changes that bring a copy whose row is null to the row's state.
  void restate_row(RowId row, std::vector<TableChange>& changes) const;

  int32_t width(GroupId group, RowId row) const { return table(group).width[index(row)]; }
  int32_t first(GroupId group, RowId row) const { return table(group).first[index(row)]; }
  BlockId block(GroupId group, RowId row, int32_t column) const;

  Columns columns(GroupId group, RowId row) const {
    const Table& t = table(group);
    return {t.first[index(row)], t.width[index(row)]};
  }

  // One row to be written, table by table; it is looked up and checked once. Columns count on while a window moves;
  // cells are reused. A change names the cell. REQUIRES: the row is claimed, a column's cell exists.
  class Row {
   public:
    Row& in(GroupId group) {
      table_ = &tables_.table(group);
      group_ = group;
      return *this;
    }
    int32_t width() const { return table_->width[at_]; }
    void set_block(int32_t column, BlockId block) {
      BZ_CHECK(block != kNullBlock);
      const int32_t cell = table_->cell(column);
      table_->block(at_, cell) = block;
      changes_.emplace_back(ChangeKind::kBlock, group_, row_, cell, block.value());
    }
    [[gnu::always_inline]] void set_width(int32_t width) {
      BZ_CHECK_GE(width, table_->width[at_]);
      BZ_CHECK_LE(width - table_->first[at_], table_->columns);
      table_->width[at_] = width;
      changes_.emplace_back(ChangeKind::kWidth, group_, row_, 0, static_cast<uint32_t>(width));
    }
    // Columns below `first` have left the window; their cells become null on the host.
    void set_first(int32_t first);

   private:
    friend class BlockTables;
    Row(BlockTables& tables, RowId row, std::vector<TableChange>& changes)
        : tables_(tables), row_(row), at_(static_cast<size_t>(row.value())), changes_(changes) {}

    BlockTables& tables_;
    RowId row_;
    size_t at_;
    std::vector<TableChange>& changes_;
    Table* table_ = nullptr;
    GroupId group_{0};
  };
  Row edit(RowId row, std::vector<TableChange>& changes) {
    BZ_CHECK(row != kNullRow && is_claimed(row));
    return {*this, row, changes};
  }

  // Asks for what is kept of the first rows beside their blocks (base/touch.h).
  void fetch_rows(size_t rows) const {
    touch_all(std::span(claimed_).first(rows));
    for (const Table& t : tables_) {
      touch_all(std::span(t.width).first(rows));
      touch_all(std::span(t.first).first(rows));
    }
  }
  // Any group's view, over host memory. Valid while this object lives.
  GroupView view(GroupId group) const;

  uint64_t hash() const;
  bool operator==(const BlockTables&) const = default;

 private:
  struct Table {
    int32_t columns = 0;
    bool wraps = false;           // a window's: columns count on, cells are reused
    std::vector<BlockId> blocks;  // [num_rows][columns]
    std::vector<int32_t> width;   // [num_rows]
    std::vector<int32_t> first;   // [num_rows]
    bool operator==(const Table&) const = default;

    int32_t cell(int32_t column) const {
      const int32_t at = wraps ? column % columns : column;
      BZ_CHECK_LT(static_cast<uint32_t>(at), static_cast<uint32_t>(columns));
      return at;
    }
    const BlockId& block(size_t row, int32_t cell) const {
      return blocks[row * static_cast<size_t>(columns) + static_cast<size_t>(cell)];
    }
    BlockId& block(size_t row, int32_t cell) { return const_cast<BlockId&>(std::as_const(*this).block(row, cell)); }
  };

  size_t index(RowId row) const {
    BZ_CHECK_LT(static_cast<uint32_t>(row.value()), static_cast<uint32_t>(num_rows_));
    return static_cast<size_t>(row.value());
  }
  const Table& table(GroupId group) const {
    BZ_CHECK_LT(static_cast<uint32_t>(group.value()), static_cast<uint32_t>(num_tables_));
    return tables_[static_cast<size_t>(group.value())];
  }
  Table& table(GroupId group) { return const_cast<Table&>(std::as_const(*this).table(group)); }

  int32_t num_rows_ = 0;
  int32_t num_tables_ = 0;
  std::vector<Table> tables_;
  std::vector<TableShape> shapes_;  // of all groups
  std::vector<int32_t> free_rows_;  // a stack; the lowest row is on top at the start
  std::vector<uint8_t> claimed_;    // [num_rows]
};

}  // namespace bz::kv
