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

struct Owners {
  int32_t all = 0;
  int32_t rows = 0;     // of those, rows
  int32_t writers = 0;  // of those, rows that may write it
};

// Rows that are not claimed, the null row first of all, hold nothing (PAD-3).
void check_empty_row(const CacheManager& m, RowId row, Report& report) {
  const BlockTables& tables = m.tables();
  for (int32_t g = 0; g < tables.num_tables(); ++g) {
    const GroupId group(g);
    report.require(tables.width(group, row) == 0 && tables.first(group, row) == 0,
                   "row {} is not in use but has columns [{}, {}) in group {}", row.value(), tables.first(group, row),
                   tables.width(group, row), g);
    const GroupView view = tables.view(group);
    for (int32_t i = 0; i < view.max_blocks_per_row; ++i) {
      const BlockId block = view.table[static_cast<int64_t>(row.value()) * view.max_blocks_per_row + i];
      report.require(block == kNullBlock, "row {} is not in use but holds block {} in group {}", row.value(),
                     block.value(), g);
    }
  }
}

// Columns from which on a step may still write.
int32_t first_open_column(const GroupSpec& spec, int32_t num_scheduled, int32_t width) {
  if (spec.kind == CacheKind::kCross) return width;
  const int32_t per_block = tokens_per_block(spec);
  return per_block == 0 ? 0 : sink_columns(spec) + num_scheduled / per_block;
}

void check_live_row(const CacheManager& m, RowId row, std::map<uint32_t, Owners>& owners, Report& report) {
  const BlockTables& tables = m.tables();
  for (int32_t g = 0; g < tables.num_tables(); ++g) {
    const GroupId group(g);
    const GroupSpec& spec = m.config().groups[static_cast<size_t>(g)];
    const int32_t cells = tables.max_columns(group);
    const int32_t first = tables.first(group, row), width = tables.width(group, row);
    report.require(0 <= first && first <= width && width - first <= cells,
                   "row {} group {}: columns [{}, {}) in {} cells", row.value(), g, first, width, cells);
    const Columns need = m.needed_columns(group, row);
    const bool waits = m.is_frozen(group, row) || tokens_per_block(spec) == 0;  // states and rings come with an append
    report.require((waits && width <= 1) || width >= need.width, "row {} group {}: {} columns, {} needed", row.value(),
                   g, width, need.width);
    report.require(first <= need.first, "row {} group {}: first is {}, {} is still needed (KV-2)", row.value(), g,
                   first, need.first);
    std::vector<int> used(static_cast<size_t>(cells), 0);
    const int32_t open = first_open_column(spec, m.num_scheduled(row), width);
    for (int32_t c = first; c < width; ++c) {
      const BlockId block = tables.block(group, row, c);
      report.require(block != kNullBlock, "row {} group {} column {} of [{}, {}) is null", row.value(), g, c, first,
                     width);
      used[static_cast<size_t>(c % cells)] = 1;
      Owners& o = owners[block.value()];
      ++o.rows;
      ++o.all;
      if (c >= open && !(c == 0 && m.is_frozen(group, row))) ++o.writers;
    }
    const GroupView view = tables.view(group);
    for (int32_t i = 0; i < cells; ++i) {
      if (used[static_cast<size_t>(i)] != 0) continue;
      const BlockId block = view.table[row.value() * cells + i];
      report.require(block == kNullBlock, "row {} group {} cell {} holds block {} but no column", row.value(), g, i,
                     block.value());
    }
  }
}

}  // namespace

std::vector<std::string> check_integrity(const CacheManager& m) {
  Report report;
  std::map<uint32_t, Owners> owners;
  for (int32_t r = 0; r < m.tables().num_rows(); ++r) {
    const RowId row(r);
    if (r != kNullRow.value() && m.is_live(row)) {
      check_live_row(m, row, owners, report);
    } else {
      check_empty_row(m, row, report);
    }
  }
  for (BlockId block : m.other_holds()) ++owners[block.value()].all;
  const BlockPool& pool = m.pool();
  int32_t free = 0, fenced = 0;
  for (int32_t id = 1; id < pool.num_blocks(); ++id) {
    const BlockId block(static_cast<uint32_t>(id));
    const Owners o = owners[block.value()];
    const int32_t owned = o.all;
    report.require(o.writers == 0 || o.rows == 1, "block {}: {} rows hold it and {} may write it (KV-6)", id, o.rows,
                   o.writers);
    report.require(o.writers == 0 || !pool.is_cached(block), "block {} is cached but may be written (KV-6)", id);
    report.require(pool.is_cached(block) == m.prefix_index().names(block), "block {}: cached {}, in the index {}", id,
                   pool.is_cached(block), m.prefix_index().names(block));
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

}  // namespace bz::kv
