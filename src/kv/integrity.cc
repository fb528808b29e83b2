#include "kv/integrity.h"

#include <map>

namespace bz::kv {
namespace {

class Report {
 public:
  template <class... Args>
  void require(bool ok, fmt::format_string<Args...> f, Args&&... args) {
    if (!ok) lines_.push_back(fmt::format(f, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

// Rows that are not claimed, the null row first of all, hold nothing (PAD-3).
void check_empty_row(const CacheManager& m, RowId row, Report& report) {
  const BlockTables& tables = m.tables();
  for (int32_t g = 0; g < tables.num_groups(); ++g) {
    const GroupId group(g);
    report.require(tables.width(group, row) == 0 && tables.first(group, row) == 0,
                   "row {} is not in use but has columns [{}, {}) in group {}", row.value(), tables.first(group, row),
                   tables.width(group, row), g);
    const GroupView view = tables.view(group);
    for (int32_t c = 0; c < view.max_blocks_per_row; ++c) {
      report.require(tables.block(group, row, c) == kNullBlock, "row {} is not in use but holds block {} in group {}",
                     row.value(), tables.block(group, row, c).value(), g);
    }
  }
}

void check_live_row(const CacheManager& m, RowId row, std::map<uint32_t, int32_t>& owners, Report& report) {
  const BlockTables& tables = m.tables();
  for (int32_t g = 0; g < tables.num_groups(); ++g) {
    const GroupId group(g);
    const GroupView view = tables.view(group);
    const int32_t first = tables.first(group, row), width = tables.width(group, row);
    report.require(0 <= first && first <= width && width <= view.max_blocks_per_row,
                   "row {} group {}: columns [{}, {}) of {}", row.value(), g, first, width, view.max_blocks_per_row);
    report.require(int64_t{width} * view.block_size >= m.num_scheduled(row),
                   "row {} group {}: {} blocks of {} for {} tokens", row.value(), g, width, view.block_size,
                   m.num_scheduled(row));
    for (int32_t c = 0; c < view.max_blocks_per_row; ++c) {
      const BlockId block = tables.block(group, row, c);
      const bool inside = first <= c && c < width;
      report.require(inside == (block != kNullBlock), "row {} group {} column {} of [{}, {}) holds block {}",
                     row.value(), g, c, first, width, block.value());
      if (block != kNullBlock) ++owners[block.value()];
    }
  }
}

}  // namespace

std::vector<std::string> check_integrity(const CacheManager& m) {
  Report report;
  std::map<uint32_t, int32_t> owners;
  for (int32_t r = 0; r < m.tables().num_rows(); ++r) {
    const RowId row(r);
    if (r != kNullRow.value() && m.is_live(row)) {
      check_live_row(m, row, owners, report);
    } else {
      check_empty_row(m, row, report);
    }
  }
  const BlockPool& pool = m.pool();
  int32_t free = 0, fenced = 0;
  for (int32_t id = 1; id < pool.num_blocks(); ++id) {
    const BlockId block(static_cast<uint32_t>(id));
    const auto it = owners.find(block.value());
    const int32_t owned = it == owners.end() ? 0 : it->second;
    report.require(pool.ref_count(block) == owned, "block {} has {} references but {} owners", id,
                   pool.ref_count(block), owned);
    report.require(pool.is_free(block) + pool.is_fenced(block) + (owned > 0) == 1,
                   "block {}: free {}, fenced {}, owners {}", id, pool.is_free(block), pool.is_fenced(block), owned);
    free += pool.is_free(block);
    fenced += pool.is_fenced(block);
  }
  report.require(!pool.is_free(kNullBlock) && !pool.is_fenced(kNullBlock) && pool.ref_count(kNullBlock) == 0,
                 "the null block takes part in the pool (PAD-1)");
  report.require(free == pool.num_free() && fenced == pool.num_fenced(), "pool counts {} free, {} fenced; found {}, {}",
                 pool.num_free(), pool.num_fenced(), free, fenced);
  report.require(pool.lists_are_sound(), "the pool's lists are broken");
  return report.take();
}

TableMirror::TableMirror(const CacheConfig& config) {
  const CacheManager shape(config);
  for (int32_t g = 0; g < shape.tables().num_groups(); ++g) {
    const GroupView view = shape.tables().view(GroupId(g));
    const auto rows = static_cast<size_t>(view.num_rows);
    groups_.push_back({view.max_blocks_per_row,
                       std::vector<uint32_t>(rows * static_cast<size_t>(view.max_blocks_per_row), 0),
                       std::vector<uint32_t>(rows, 0), std::vector<uint32_t>(rows, 0)});
  }
}

void TableMirror::apply(const CachePlan& plan) {
  BZ_CHECK_EQ(plan.sequence, sequence_ + 1);
  sequence_ = plan.sequence;
  for (const TableChange& change : plan.changes) {
    BZ_CHECK(change.row != kNullRow);  // PAD-3: nobody writes the null row
    Group& group = groups_.at(static_cast<size_t>(change.group.value()));
    const auto row = static_cast<size_t>(change.row.value());
    switch (change.kind) {
      case ChangeKind::kBlock:
        group.blocks.at(row * static_cast<size_t>(group.max_columns) + static_cast<size_t>(change.column)) =
            change.value;
        break;
      case ChangeKind::kWidth: group.width.at(row) = change.value; break;
      case ChangeKind::kFirst: group.first.at(row) = change.value; break;
      case ChangeKind::kRowStart: break;
    }
  }
}

BlockId TableMirror::block(GroupId group, RowId row, int32_t column) const {
  const Group& g = groups_.at(static_cast<size_t>(group.value()));
  return BlockId(
      g.blocks.at(static_cast<size_t>(row.value()) * static_cast<size_t>(g.max_columns) + static_cast<size_t>(column)));
}
int32_t TableMirror::width(GroupId group, RowId row) const {
  return static_cast<int32_t>(
      groups_.at(static_cast<size_t>(group.value())).width.at(static_cast<size_t>(row.value())));
}
int32_t TableMirror::first(GroupId group, RowId row) const {
  return static_cast<int32_t>(
      groups_.at(static_cast<size_t>(group.value())).first.at(static_cast<size_t>(row.value())));
}

std::vector<std::string> check_mirror(const CacheManager& m, const TableMirror& mirror) {
  Report report;
  report.require(mirror.sequence() == m.last_sequence(), "the mirror is at plan {}, the host at {}", mirror.sequence(),
                 m.last_sequence());
  report.require(m.pending_changes().empty(), "{} changes are pending", m.pending_changes().size());
  for (int32_t g = 0; g < m.tables().num_groups(); ++g) {
    for (int32_t r = 0; r < m.tables().num_rows(); ++r) {
      const GroupId group(g);
      const RowId row(r);
      const int32_t first = m.tables().first(group, row), width = m.tables().width(group, row);
      report.require(mirror.width(group, row) == width && mirror.first(group, row) == first,
                     "row {} group {}: columns [{}, {}) on the host, [{}, {}) in the mirror", r, g, first, width,
                     mirror.first(group, row), mirror.width(group, row));
      for (int32_t c = first; c < width; ++c) {
        report.require(mirror.block(group, row, c) == m.tables().block(group, row, c),
                       "row {} group {} column {}: block {} on the host, {} in the mirror", r, g, c,
                       m.tables().block(group, row, c).value(), mirror.block(group, row, c).value());
      }
    }
  }
  return report.take();
}

}  // namespace bz::kv
