#include "kv/cache_manager.h"

#include <algorithm>
#include <limits>

#include "base/math.h"
#include "kv/hash.h"

namespace bz::kv {
namespace {

// Columns a row needs for its first num_tokens tokens.
int32_t columns_for(const GroupSpec& spec, int32_t num_tokens) { return ceil_div(num_tokens, spec.block_size); }

std::vector<TableShape> table_shapes(const CacheConfig& config) {
  BZ_CHECK_GE(config.max_seq_len, 1);
  BZ_CHECK_GE(config.max_changes_per_plan, 1);
  std::vector<TableShape> shapes;
  for (const GroupSpec& spec : config.groups) {
    BZ_CHECK_GT(spec.block_size, 0);
    shapes.push_back({spec.block_size, columns_for(spec, config.max_seq_len), config.max_seq_len});
  }
  return shapes;
}

}  // namespace

CacheConfig make_cache_config(const Layout& layout, int32_t max_rows, int32_t max_seq_len) {
  CacheConfig config;
  for (const GroupLayout& group : layout.groups) config.groups.push_back(group.spec);
  config.num_blocks = layout.num_blocks;
  config.max_rows = max_rows;
  config.max_seq_len = max_seq_len;
  return config;
}

CacheManager::CacheManager(const CacheConfig& config)
    : config_(config), pool_(config.num_blocks), tables_(config.max_rows, table_shapes(config)) {
  const auto rows = static_cast<size_t>(config.max_rows);
  rows_.resize(rows);
  // Room for every row to begin, end and take all blocks between two plans: steady steps never grow these (ENG-3).
  changes_.reserve(static_cast<size_t>(config.num_blocks) + rows * (1 + 3 * config.groups.size()));
  spans_.reserve(rows);
}

RowId CacheManager::admit() {
  BZ_CHECK(can_admit());
  const RowId row = tables_.claim_row();
  state(row) = RowRecord{};
  changes_.push_back({ChangeKind::kRowStart, GroupId(0), row, 0, 0});
  return row;
}

bool CacheManager::can_append(RowId row, int32_t num_tokens) const {
  const RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, 1);
  if (num_tokens > config_.max_seq_len - record.num_scheduled) return false;
  const int32_t total = record.num_scheduled + num_tokens;
  if (total <= record.capacity) return true;
  int32_t needed = 0;
  for (int32_t g = 0; g < tables_.num_groups(); ++g) {
    const GroupSpec& spec = config_.groups[static_cast<size_t>(g)];
    needed += std::max(0, columns_for(spec, total) - tables_.width(GroupId(g), row));
  }
  return pool_.can_allocate(needed);
}

void CacheManager::append(RowId row, int32_t num_tokens) {
  RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, 1);
  BZ_CHECK_LE(num_tokens, config_.max_seq_len - record.num_scheduled);
  const int32_t start = record.num_scheduled;
  record.num_scheduled += num_tokens;
  if (record.num_scheduled > record.capacity) grow(row, record, record.num_scheduled);
  if (record.span >= 0) {
    spans_[static_cast<size_t>(record.span)].query_len += num_tokens;
    return;
  }
  record.span = static_cast<int32_t>(spans_.size());
  spans_.push_back({row, start, num_tokens});
}

// Gives the row blocks for num_tokens tokens in every group. All or nothing: pool_.allocate() checks, and can_append
// counted the same columns (KV-1).
void CacheManager::grow(RowId row, RowRecord& record, int32_t num_tokens) {
  BZ_CHECK_GT(num_tokens, record.capacity);
  BZ_CHECK_LE(num_tokens, config_.max_seq_len);
  int32_t capacity = std::numeric_limits<int32_t>::max();
  for (int32_t g = 0; g < tables_.num_groups(); ++g) {
    const GroupId group(g);
    const GroupSpec& spec = config_.groups[static_cast<size_t>(g)];
    const int32_t have = tables_.width(group, row);
    const int32_t need = columns_for(spec, num_tokens);
    for (int32_t column = have; column < need; ++column) {
      tables_.push_block(group, row, column, pool_.allocate(), changes_);
    }
    if (need > have) tables_.set_width(group, row, need, changes_);
    capacity = std::min(capacity, std::max(need, have) * spec.block_size);
  }
  record.capacity = capacity;
}

void CacheManager::release(RowId row) {
  RowRecord& record = state(row);
  drop_span(record);
  const uint64_t fence = last_sequence();
  // Last block first: of cached blocks the tail of a prompt is given up before its head.
  for (int32_t g = 0; g < tables_.num_groups(); ++g) {
    const GroupId group(g);
    for (int32_t c = tables_.width(group, row) - 1; c >= tables_.first(group, row); --c) {
      pool_.release(tables_.block(group, row, c), fence);
    }
  }
  tables_.release_row(row, changes_);
  record = RowRecord{};
}

void CacheManager::drop_span(RowRecord& record) {
  if (record.span < 0) return;
  BZ_CHECK_LT(static_cast<size_t>(record.span), spans_.size());
  spans_.erase(spans_.begin() + record.span);
  for (size_t i = static_cast<size_t>(record.span); i < spans_.size(); ++i) {
    state(spans_[i].row).span = static_cast<int32_t>(i);
  }
  record.span = -1;
}

bool CacheManager::take_plan(CachePlan& plan) {
  plan.sequence = next_sequence_++;
  plan.copies.clear();
  plan.rows.clear();
  const auto limit = static_cast<size_t>(config_.max_changes_per_plan);
  if (changes_.size() > limit) {
    const auto cut = changes_.begin() + config_.max_changes_per_plan;
    plan.changes.assign(changes_.begin(), cut);
    changes_.erase(changes_.begin(), cut);
    return false;
  }
  // Copies, not swaps: both vectors keep their capacity.
  plan.changes.assign(changes_.begin(), changes_.end());
  plan.copies.assign(copies_.begin(), copies_.end());
  plan.rows.assign(spans_.begin(), spans_.end());
  for (const RowSpan& span : spans_) state(span.row).span = -1;
  changes_.clear();
  copies_.clear();
  spans_.clear();
  return true;
}

void CacheManager::processed(uint64_t sequence) {
  BZ_CHECK_LE(sequence, last_sequence());
  BZ_CHECK_GE(sequence, pool_.processed_sequence());
  pool_.processed(sequence);
}

double CacheManager::usage() const {
  const int32_t usable = pool_.num_blocks() - 1;
  BZ_CHECK_GT(usable, 0);
  BZ_CHECK_LE(pool_.num_owned(), usable);
  return static_cast<double>(pool_.num_owned()) / usable;
}

int32_t CacheManager::num_blocks_for(int32_t num_tokens) const {
  BZ_CHECK_GE(num_tokens, 0);
  BZ_CHECK_LE(num_tokens, config_.max_seq_len);
  int32_t total = 0;
  for (const GroupSpec& spec : config_.groups) total += columns_for(spec, num_tokens);
  return total;
}

uint64_t CacheManager::hash() const {
  Hasher h;
  h.add(pool_.hash());
  h.add(tables_.hash());
  for (const RowRecord& r : rows_) h.add(static_cast<uint64_t>(r.num_scheduled) << 32 | static_cast<uint32_t>(r.span));
  for (const TableChange& c : changes_) {
    h.add(static_cast<uint64_t>(c.kind) << 32 | static_cast<uint32_t>(c.group.value()));
    h.add(static_cast<uint64_t>(static_cast<uint32_t>(c.row.value())) << 32 | static_cast<uint32_t>(c.column));
    h.add(c.value);
  }
  for (const RowSpan& s : spans_) {
    h.add(static_cast<uint64_t>(static_cast<uint32_t>(s.row.value())) << 32 | static_cast<uint32_t>(s.start));
    h.add(static_cast<uint64_t>(s.query_len));
  }
  h.add(next_sequence_);
  return h.value();
}

}  // namespace bz::kv
