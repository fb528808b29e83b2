#include "kv/block_table.h"

#include <algorithm>

#include "base/mutation.h"
#include "kv/hash.h"
#include "kv/rules.h"

namespace bz::kv {

BlockTables::BlockTables(int32_t num_rows, const std::vector<TableShape>& shapes)
    : num_rows_(num_rows), shapes_(shapes) {
  BZ_CHECK_GE(num_rows, 2);
  BZ_CHECK(!shapes.empty() && shapes.size() <= kMaxGroups);
  const auto rows = static_cast<size_t>(num_rows);
  for (const TableShape& shape : shapes) {
    BZ_CHECK_GT(shape.max_columns, 0);
    BZ_CHECK_GT(shape.spec.block_size, 0);
    if (shape.spec.table_of != kOwnTable) continue;
    Table t;
    t.columns = shape.max_columns;
    t.wraps = slot_form(shape.spec.kind) == SlotForm::kWindowed;
    t.blocks.assign(rows * static_cast<size_t>(shape.max_columns), kNullBlock);
    t.width.assign(rows, 0);
    t.first.assign(rows, 0);
    tables_.push_back(std::move(t));
  }
  num_tables_ = static_cast<int32_t>(tables_.size());
  claimed_.assign(rows, 0);
  free_rows_.reserve(rows);
  for (int32_t row = num_rows - 1; row > kNullRow.value(); --row) free_rows_.push_back(row);
}

RowId BlockTables::claim_row() {
  BZ_CHECK(!free_rows_.empty());
  const RowId row(free_rows_.back());
  free_rows_.pop_back();
  BZ_CHECK(row != kNullRow && !is_claimed(row));
  claimed_[index(row)] = 1;
  return row;
}

void BlockTables::release_row(RowId row, std::vector<TableChange>& changes) {
  BZ_CHECK(row != kNullRow);
  BZ_CHECK(is_claimed(row));
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    Table& t = table(group);
    for (int32_t c = t.first[index(row)]; c < t.width[index(row)]; ++c) t.block(index(row), t.cell(c)) = kNullBlock;
    const bool slid = t.first[index(row)] != 0;
    t.width[index(row)] = t.first[index(row)] = 0;
    if (mutated(Mutation::kReleaseWithoutChange)) continue;  // F08
    changes.emplace_back(ChangeKind::kWidth, group, row, 0, 0);
    if (slid) changes.emplace_back(ChangeKind::kFirst, group, row, 0, 0);
  }
  claimed_[index(row)] = 0;
  free_rows_.push_back(row.value());
}

void BlockTables::restate_row(RowId row, std::vector<TableChange>& changes) const {
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const Table& t = table(group);
    const auto [first, width] = columns(group, row);
    for (int32_t c = first; c < width; ++c) {
      changes.emplace_back(ChangeKind::kBlock, group, row, t.cell(c), t.block(index(row), t.cell(c)).value());
    }
    changes.emplace_back(ChangeKind::kFirst, group, row, 0, static_cast<uint32_t>(first));
    changes.emplace_back(ChangeKind::kWidth, group, row, 0, static_cast<uint32_t>(width));
  }
}

BlockId BlockTables::block(GroupId group, RowId row, int32_t column) const {
  const Table& t = table(group);
  return t.block(index(row), t.cell(column));
}

void BlockTables::Row::set_first(int32_t first) {
  BZ_CHECK_GE(first, table_->first[at_]);
  for (int32_t c = table_->first[at_]; c < std::min(first, table_->width[at_]); ++c) {
    table_->block(at_, table_->cell(c)) = kNullBlock;
  }
  table_->first[at_] = first;
  changes_.emplace_back(ChangeKind::kFirst, group_, row_, 0, static_cast<uint32_t>(first));
}

GroupView view_of(const TableShape& shape, GroupId group, int32_t num_rows, const BlockId* table, const int32_t* width,
                  const int32_t* first) {
  const GroupSpec& spec = shape.spec;
  GroupView view{table, width, first, num_rows, shape.max_columns, spec.block_size, shape.max_position};
  view.form = slot_form(spec.kind);
  view.ratio = spec.ratio;
  view.base_column = sink_columns(spec);
  view.cp_world = spec.cp_world;
  view.cp_rank = spec.cp_rank;
  view.cp_interleave = spec.cp_interleave;
  view.window = view.form == SlotForm::kWindowed ? spec.window : 0;
  view.chunked = spec.kind == CacheKind::kChunkedLocal;
  view.group = group;
  return view;
}

GroupView BlockTables::view(GroupId group) const {
  const TableShape& shape = shapes_.at(static_cast<size_t>(group.value()));
  const Table& t = table(table_of(shape.spec, group));
  BZ_CHECK_EQ(static_cast<int32_t>(t.width.size()), num_rows_);
  BZ_CHECK_EQ(t.width[0], 0);
  return view_of(shape, group, num_rows_, t.blocks.data(), t.width.data(), t.first.data());
}

uint64_t BlockTables::hash() const {
  Hasher h;
  for (const Table& t : tables_) {
    for (BlockId b : t.blocks) h.add(b.value());
    for (int32_t w : t.width) h.add(static_cast<uint64_t>(w));
    for (int32_t f : t.first) h.add(static_cast<uint64_t>(f));
  }
  for (int32_t row : free_rows_) h.add(static_cast<uint64_t>(row));
  return h.value();
}

}  // namespace bz::kv
