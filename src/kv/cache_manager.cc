// Rows, steps and plans. Prefixes and forks: cache_prefix.cc; transfers: cache_transfers.cc.
#include "kv/cache_manager.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/mutation.h"
#include "kv/hash.h"

namespace bz::kv {
namespace {

RowLimits limits_of(const CacheConfig& config) {
  const int32_t in_flight = config.max_in_flight > 0 ? config.max_in_flight : config.max_seq_len;
  return {config.max_seq_len, in_flight, config.num_spec, config.max_encoder_tokens};
}

// Tokens of a hash block: it divides the tokens of every group's block.
int32_t hash_unit(const CacheConfig& config) {
  int32_t unit = 0;
  for (const GroupSpec& spec : config.groups) unit = std::gcd(unit, tokens_per_block(spec));
  if (unit == 0) unit = std::max(1, config.snapshot_interval);  // recurrent layers alone
  return unit;
}

int32_t max_nodes(const CacheConfig& config) {
  if (!config.prefix_cache) return 0;
  int32_t per_block = 1;
  for (const GroupSpec& spec : config.groups)
    per_block = std::max(per_block, tokens_per_block(spec) / hash_unit(config));
  return static_cast<int32_t>(std::min<int64_t>(int64_t{config.num_blocks} * per_block, 1 << 28));
}

}  // namespace

CacheConfig make_cache_config(const Layout& layout, int32_t max_rows, int32_t max_seq_len) {
  CacheConfig config;
  for (const GroupLayout& group : layout.groups) config.groups.push_back(group.spec);
  config.num_blocks = layout.num_blocks;
  config.max_rows = max_rows;
  config.max_seq_len = max_seq_len;
  config.block_stride = layout.block_stride;
  return config;
}

std::vector<TableShape> table_shapes(const CacheConfig& config) {
  BZ_CHECK_GE(config.max_seq_len, 1);
  BZ_CHECK_GE(config.max_changes_per_plan, 1);
  BZ_CHECK_GE(config.num_spec, 0);
  std::vector<TableShape> shapes;
  for (const GroupSpec& spec : config.groups) {
    BZ_CHECK_GT(spec.block_size, 0);
    BZ_CHECK_EQ(spec.block_size % spec.cp_interleave, 0);
    const int32_t positions = spec.kind == CacheKind::kCross ? config.max_encoder_tokens : config.max_seq_len;
    shapes.push_back({spec, max_columns(spec, limits_of(config)), positions});
  }
  return shapes;
}

CacheManager::CacheManager(const CacheConfig& config)
    : config_(config),
      pool_(config.num_blocks),
      tables_(config.max_rows, table_shapes(config)),
      index_(config.num_blocks, max_nodes(config), hash_unit(config), config.digest, config.hash_key) {
  const auto rows = static_cast<size_t>(config.max_rows);
  rows_.resize(rows);
  // Room for every row to begin, end and take all blocks between two plans: steady steps never grow these (ENG-3).
  changes_.reserve(static_cast<size_t>(config.num_blocks) + rows * (1 + 4 * config.groups.size()));
  copies_.reserve(rows * config.groups.size());
  spans_.reserve(rows);
  forked_.reserve(rows);
  transfers_.resize(static_cast<size_t>(config.max_transfers));
  for (const GroupSpec& spec : config.groups) {
    for (int32_t i = 0; i < sink_columns(spec); ++i) sinks_.push_back(pool_.allocate());
  }
}

BlockId CacheManager::take_block() {
  const BlockId block = pool_.allocate();
  if (pool_.is_cached(block)) {
    index_.forget(block);
    pool_.set_cached(block, false);
  }
  BZ_CHECK(block != kNullBlock);
  return block;
}

void CacheManager::release_block(BlockId block) {
  pool_.release(block, mutated(Mutation::kReleaseWithoutFence) ? 0 : last_sequence());
  if (copies_.empty() || pool_.ref_count(block) > 0) return;
  // Nobody waits for what a pending copy would write there: the block may be another's before that plan runs.
  const auto dead = std::find_if(copies_.begin(), copies_.end(), [&](const BlockCopy& c) { return c.to == block; });
  if (dead == copies_.end()) return;
  const BlockId from = dead->from;
  copies_.erase(dead);
  release_block(from);
}

void CacheManager::copy_block(BlockId from, BlockId to) {
  BZ_CHECK(from != to);
  if (mutated(Mutation::kSharedBlockIsWritten)) return;
  // A source that is itself still to be copied: take what it will be copied from. Copies of a plan run in any order.
  for (const BlockCopy& c : copies_) {
    if (c.to == from) from = c.from;
  }
  pool_.add_ref(from);
  copies_.push_back({from, to});
  BZ_CHECK(to != kNullBlock);
}

RowId CacheManager::new_row(int32_t num_tokens, int32_t encoder_tokens) {
  BZ_CHECK(can_admit());
  BZ_CHECK_LE(encoder_tokens, config_.max_encoder_tokens);
  const RowId row = tables_.claim_row();
  RowRecord& record = state(row);
  record = RowRecord{};
  record.num_scheduled = record.num_planned = record.num_processed = num_tokens;
  record.encoder_tokens = encoder_tokens;
  record.node_serial = index_.serial(PrefixIndex::kRoot);
  changes_.push_back({ChangeKind::kRowStart, GroupId(0), row, 0, static_cast<uint32_t>(num_tokens)});
  return row;
}

RowId CacheManager::admit(int32_t encoder_tokens) { return new_row(0, encoder_tokens); }

// Blocks to allocate for `total` tokens; *cells_left: every table has cells for them.
int32_t CacheManager::count_needed(RowId row, const RowRecord& record, int32_t total, bool* cells_left) const {
  RowProgress want = progress(record);
  want.scheduled = total;
  int32_t needed = 0;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupId group(g);
    const int32_t width = columns_for(spec(group), want, config_.num_spec).width;
    const int32_t have = std::max(tables_.width(group, row), sink_columns(spec(group)));
    needed += std::max(0, width - have) + static_cast<int32_t>(record.frozen >> g & 1);
    if (width - tables_.first(group, row) > tables_.max_columns(group)) *cells_left = false;
  }
  return needed;
}

bool CacheManager::can_append(RowId row, int32_t num_tokens) const {
  const RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, 1);
  if (record.loading || record.sending > 0 || num_tokens > config_.max_seq_len - record.num_scheduled) return false;
  const int32_t total = record.num_scheduled + num_tokens;
  if (total <= record.capacity) return true;
  bool cells_left = true;
  const int32_t needed = count_needed(row, record, total, &cells_left);
  return cells_left && pool_.can_allocate(needed);
}

// Puts a block that others hold too into a column.
void CacheManager::share_block(GroupId group, RowId row, int32_t column, BlockId block) {
  pool_.add_ref(block);
  tables_.set_block(group, row, column, block, changes_);
}

// Column 0 is written from now on: the row gets a copy of its own (KV-6).
void CacheManager::thaw(GroupId group, RowId row, RowRecord& record) {
  const BlockId from = tables_.block(group, row, 0);
  const BlockId to = take_block();
  copy_block(from, to);
  tables_.set_block(group, row, 0, to, changes_);
  release_block(from);
  record.frozen &= ~(1u << group.value());
}

// Gives the row blocks for `total` tokens in every group. All or nothing: can_append counted the same columns (KV-1).
void CacheManager::grow(RowId row, RowRecord& record, int32_t total) {
  bool cells_left = true;
  BZ_CHECK(!record.loading && record.sending == 0);
  BZ_CHECK_LE(count_needed(row, record, total, &cells_left), pool_.num_free());
  BZ_CHECK(cells_left);
  RowProgress want = progress(record);
  want.scheduled = total;
  size_t sink = 0;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupId group(g);
    if ((record.frozen >> g & 1) != 0) thaw(group, row, record);
    const int32_t sinks = sink_columns(spec(group));
    const int32_t have = tables_.width(group, row);
    const int32_t width = columns_for(spec(group), want, config_.num_spec).width;
    for (int32_t column = have; column < width; ++column) {
      if (column < sinks) {
        share_block(group, row, column, sinks_[sink + static_cast<size_t>(column)]);
      } else {
        tables_.set_block(group, row, column, take_block(), changes_);
      }
    }
    if (width > have) tables_.set_width(group, row, width, changes_);
    sink += static_cast<size_t>(sinks);
  }
  set_capacity(row, record);
}

void CacheManager::set_capacity(RowId row, RowRecord& record) {
  int64_t capacity = config_.max_seq_len;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupSpec& s = spec(GroupId(g));
    const int32_t width = tables_.width(GroupId(g), row);
    if (tokens_per_block(s) == 0) {
      const bool grows = width == 0 && s.kind != CacheKind::kCross;
      if (grows || (s.kind == CacheKind::kState && width < 1 + config_.num_spec)) capacity = 0;
    } else {
      capacity = std::min(capacity, int64_t{width - sink_columns(s)} * tokens_per_block(s) + s.ratio - 1);
    }
  }
  record.capacity = record.frozen != 0 || record.sending > 0 ? 0 : static_cast<int32_t>(std::max<int64_t>(capacity, 0));
}

void CacheManager::set_processed(RowId row, int32_t num_tokens) {
  RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, record.num_processed);
  BZ_CHECK_LE(num_tokens, record.num_planned);
  record.num_processed = num_tokens;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupId group(g);
    const int32_t first = tables_.first(group, row);
    RowProgress by = progress(record);
    if (mutated(Mutation::kWindowByScheduled)) by.processed = by.scheduled;  // F21
    const int32_t want = std::min(columns_for(spec(group), by, config_.num_spec).first, tables_.width(group, row));
    if (want <= first) continue;
    for (int32_t c = first; c < want; ++c) release_block(tables_.block(group, row, c));
    tables_.set_first(group, row, want, changes_);
  }
}

void CacheManager::rollback(RowId row, int32_t num_tokens) {
  RowRecord& record = state(row);
  BZ_CHECK(record.span < 0 && num_tokens >= 0);
  BZ_CHECK_LE(num_tokens, record.num_planned - std::max(record.num_processed, record.num_published));
  record.num_scheduled -= num_tokens;
  record.num_planned -= num_tokens;
}

void CacheManager::release(RowId row) {
  RowRecord& record = state(row);
  drop_span(record);
  for (Transfer& t : transfers_) {
    if (t.row == row) t.row = kNullRow;  // its pins stay until its operations have finished (XFER-1)
  }
  // Last block first: of cached blocks the tail of a prompt is given up before its head.
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupId group(g);
    for (int32_t c = tables_.width(group, row) - 1; c >= tables_.first(group, row); --c) {
      release_block(tables_.block(group, row, c));
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
  for (const RowSpan& span : spans_) {
    RowRecord& record = state(span.row);
    record.span = -1;
    record.num_planned = record.num_scheduled;
    record.last_sequence = plan.sequence;
  }
  for (RowId row : forked_) {
    if (!is_live(row) || !state(row).forked) continue;
    state(row).forked = false;
    state(row).last_sequence = plan.sequence;
  }
  forked_.clear();
  changes_.clear();
  copies_.clear();
  spans_.clear();
  for (const BlockCopy& c : plan.copies) release_block(c.from);  // fenced by this plan, which reads it
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
  for (const GroupSpec& s : config_.groups) {
    const Columns c = columns_for(s, {0, num_tokens, config_.max_encoder_tokens}, config_.num_spec);
    // A window's row never holds more than its table has cells.
    total += std::min(std::max(0, c.width - sink_columns(s)), max_columns(s, limits_of(config_)));
  }
  return total;
}

Columns CacheManager::needed_columns(GroupId group, RowId row) const {
  return columns_for(spec(group), progress(state(row)), config_.num_spec);
}

std::vector<BlockId> CacheManager::other_holds() const {
  std::vector<BlockId> holds = sinks_;
  for (const BlockCopy& c : copies_) holds.push_back(c.from);
  for (const Transfer& t : transfers_) {
    if (t.state != TransferState::kRunning) continue;
    for (const TransferBlock& b : t.blocks) holds.push_back(b.block);
  }
  return holds;
}

uint64_t CacheManager::hash() const {
  Hasher h;
  const auto add = [&h](auto... values) { (h.add(static_cast<uint64_t>(values)), ...); };
  add(pool_.hash(), tables_.hash(), index_.hash(), next_sequence_);
  for (const RowRecord& r : rows_) {
    add(r.num_scheduled, r.span, r.num_planned, r.num_processed, r.frozen, r.loading, r.sending, r.forked,
        r.last_sequence, r.num_published);
  }
  for (const TableChange& c : changes_) add(c.kind, c.group.value(), c.row.value(), c.column, c.value);
  for (const BlockCopy& c : copies_) add(c.from.value(), c.to.value());
  for (const RowSpan& s : spans_) add(s.row.value(), s.start, s.query_len);
  for (const Transfer& t : transfers_) {
    add(t.state, t.kind, t.row.value(), t.ops_left, t.ops_running, t.failed, t.expired, t.deadline);
    for (const TransferBlock& b : t.blocks) add(b.group.value(), b.column, b.block.value());
  }
  return h.value();
}

}  // namespace bz::kv
