// Rows, steps and plans. Prefixes and forks: cache_prefix.cc; transfers: cache_transfers.cc.
#include "kv/cache_manager.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "base/mutation.h"
#include "kv/hash.h"

namespace bz::kv {
namespace {

RowLimits limits_of(const CacheConfig& config) {
  const int32_t in_flight = config.max_in_flight > 0 ? config.max_in_flight : config.max_seq_len;
  return {config.max_seq_len, in_flight, config.num_spec, config.max_encoder_tokens};
}

std::span<const GroupSpec> tables_of(const CacheConfig& config) {
  return {config.groups.data(), static_cast<size_t>(num_tables(config.groups))};
}

// Tokens of a hash block: it divides the tokens of every group's block.
int32_t hash_unit(const CacheConfig& config) {
  int32_t unit = 0;
  for (const GroupSpec& spec : tables_of(config)) unit = std::gcd(unit, tokens_per_block(spec));
  if (unit == 0) unit = std::max(1, config.snapshot_interval);  // recurrent layers alone
  return unit;
}

int32_t max_nodes(const CacheConfig& config) {
  if (!config.prefix_cache) return 0;
  int32_t per_block = 1;
  for (const GroupSpec& spec : tables_of(config))
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
    const bool owns = spec.table_of == kOwnTable;
    BZ_CHECK(owns || can_share_table(config.groups.at(static_cast<size_t>(spec.table_of)), spec));
    const int32_t columns =
        owns ? max_columns(spec, limits_of(config)) : shapes.at(static_cast<size_t>(spec.table_of)).max_columns;
    shapes.push_back({spec, columns, positions});
  }
  return shapes;
}

int32_t num_blocks_for(const CacheConfig& config, int32_t num_tokens) {
  BZ_CHECK_GE(num_tokens, 0);
  BZ_CHECK_LE(num_tokens, config.max_seq_len);
  int32_t total = 0;
  for (const GroupSpec& s : tables_of(config)) {
    const Columns c = columns_for(s, {0, num_tokens, config.max_encoder_tokens}, config.num_spec);
    if (config.prefix_cache && s.snapshot) ++total;
    // A window's row never holds more than its table has cells.
    total += std::min(std::max(0, c.width - sink_columns(s)), max_columns(s, limits_of(config)));
  }
  return total;
}

// A copy's target is in a live row's table (release_block). It is the block that a fork left open, one of a kind whose
// blocks do not grow with the tokens, or a new one that is zeroed (KV-4), for a token of this plan.
int32_t max_copies_per_plan(const CacheConfig& config, int32_t max_tokens) {
  int32_t per_row = 0, for_tokens = 0;
  for (const GroupSpec& spec : tables_of(config)) {
    const bool grows = tokens_per_block(spec) > 0;
    per_row += grows ? 1 : max_columns(spec, limits_of(config));
    if (grows && spec.zeroed) for_tokens += max_tokens;
  }
  return (config.max_rows - 1) * per_row + for_tokens;
}

CacheManager::CacheManager(const CacheConfig& config)
    : config_(config),
      pool_(config.num_blocks),
      tables_(config.max_rows, table_shapes(config)),
      index_(config.num_blocks, max_nodes(config), tables_.num_tables(), hash_unit(config), config.digest,
             config.hash_key) {
  const auto rows = static_cast<size_t>(config.max_rows);
  for (const GroupSpec& spec : tables_of(config)) {
    rules_.emplace_back(spec, static_cast<int32_t>(sinks_.size()));
    for (int32_t i = 0; i < sink_columns(spec); ++i) sinks_.push_back(pool_.allocate());
  }
  rows_.resize(rows);
  fills_.resize(rows);
  // Room for every row to begin, end and take all blocks between two plans: steady steps never grow these (ENG-3).
  changes_.reserve(static_cast<size_t>(config.num_blocks) + rows * (1 + 4 * config.groups.size()));
  copies_.reserve(rows * config.groups.size());
  batch_.reserve(rows);
  forked_.reserve(rows);
  transfers_.resize(static_cast<size_t>(config.max_transfers));
}

void CacheManager::release_block(BlockId block) {
  pool_.release(block, mutated(Mutation::kReleaseWithoutFence) ? 0 : last_sequence());
  if (copies_.empty() || pool_.ref_count(block) > 0) return;
  // Nobody waits for what a pending copy would write there: the block may be another's before that plan runs.
  const auto dead = std::find_if(copies_.begin(), copies_.end(), [&](const BlockCopy& c) { return c.to == block; });
  if (dead == copies_.end()) return;
  const BlockId from = dead->from;
  copies_.erase(dead);
  drop_copy_source(from);
}

void CacheManager::copy_block(BlockId from, BlockId to) {
  BZ_CHECK(from != to);
  if (mutated(Mutation::kSharedBlockIsWritten)) return;
  // A source that is itself still to be copied: take what it will be copied from. Copies of a plan run in any order.
  for (const BlockCopy& c : copies_) {
    if (c.to == from) from = c.from;
  }
  if (from != kNullBlock) pool_.add_ref(from);
  copies_.push_back({from, to});
  BZ_CHECK(to != kNullBlock);
}

RowId CacheManager::new_row(int32_t num_tokens, int32_t encoder_tokens) {
  BZ_CHECK(can_admit());
  BZ_CHECK_LE(encoder_tokens, config_.max_encoder_tokens);
  const RowId row = tables_.claim_row();
  RowRecord& record = state(row);
  record = RowRecord{};
  fill_of(row) = {num_tokens, num_tokens, 0};
  record.num_processed = num_tokens;
  record.encoder_tokens = encoder_tokens;
  record.node_serial = index_.serial(PrefixIndex::kRoot);
  changes_.emplace_back(ChangeKind::kRowStart, GroupId(0), row, 0, static_cast<uint32_t>(num_tokens));
  return row;
}

RowId CacheManager::admit(int32_t encoder_tokens) { return new_row(0, encoder_tokens); }

// Widens a row's table for `total` tokens, sinks included. How many of them have room then.
[[gnu::always_inline]] inline int64_t CacheManager::widen(GroupId table, const RowRecord& record, int32_t total,
                                                          int32_t& width) const {
  const GrowthRule& rule = rules_[static_cast<size_t>(table.value())];
  width = std::max(width, rule.sinks);
  if (rule.tokens_per_block > 0) return rule.widen(width, total);
  width = std::max(width, width_for(spec(table), {0, total, record.encoder_tokens}, config_.num_spec));
  return config_.max_seq_len;
}

bool CacheManager::can_make_room(RowId row, int32_t num_tokens) const {
  const RowRecord& record = state(row);
  const int32_t scheduled = num_scheduled(row);
  BZ_CHECK_GE(num_tokens, 1);
  if (record.loading || record.sending > 0 || num_tokens > config_.max_seq_len - scheduled) return false;
  int32_t needed = std::popcount(record.frozen);  // they are copied
  for (int32_t g = 0; g < num_tables(); ++g) {
    const Columns now = tables_.columns(GroupId(g), row);
    int32_t width = now.width;
    widen(GroupId(g), record, scheduled + num_tokens, width);
    if (width - now.first > tables_.max_columns(GroupId(g))) return false;
    needed += width - std::max(now.width, rules_[static_cast<size_t>(g)].sinks);
  }
  return pool_.can_allocate(needed);
}

// Column 0 is written from now on: the row gets a copy of its own (KV-6).
void CacheManager::thaw(GroupId group, RowId row) {
  const BlockId from = tables_.block(group, row, 0);
  const BlockId to = take_block();
  copy_block(from, to);
  tables_.edit(row, changes_).in(group).set_block(0, to);
  release_block(from);
  state(row).frozen &= ~(1u << group.value());
}

// Gives the row blocks for more tokens in every table. can_append has said that all of them are there (KV-1).
void CacheManager::make_room(RowId row, int32_t num_tokens) {
  const RowRecord& record = state(row);
  RowFill& fill = fills_[static_cast<size_t>(row.value())];
  BZ_CHECK_GE(num_tokens, 1);
  BZ_CHECK_LE(num_tokens, config_.max_seq_len - fill.num_scheduled);
  BZ_CHECK(!record.loading && record.sending == 0);
  const int32_t total = fill.num_scheduled + num_tokens;
  int64_t capacity = config_.max_seq_len;
  BlockTables::Row cells = tables_.edit(row, changes_);
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId table(g);
    const GrowthRule& rule = rules_[static_cast<size_t>(g)];
    if ((record.frozen >> g & 1) != 0) thaw(table, row);
    const int32_t have = cells.in(table).width();
    int32_t width = have;
    capacity = std::min(capacity, widen(table, record, total, width));
    for (int32_t c = have; c < width; ++c) cells.set_block(c, c < rule.sinks ? share_sink(rule, c) : new_block(rule));
    if (width > have) cells.set_width(width);
  }
  fill.capacity = static_cast<int32_t>(capacity);
}

void CacheManager::set_capacity(RowId row) {
  const RowRecord& record = state(row);
  int64_t capacity = record.frozen != 0 || record.sending > 0 ? 0 : config_.max_seq_len;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const int32_t have = tables_.width(GroupId(g), row);
    int32_t width = have;
    const int64_t room = widen(GroupId(g), record, num_scheduled(row) + 1, width);
    capacity = std::min(capacity, width > have ? 0 : room);
  }
  fill_of(row).capacity = static_cast<int32_t>(capacity);
}

void CacheManager::set_processed(RowId row, int32_t num_tokens) {
  RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, record.num_processed);
  BZ_CHECK_LE(num_tokens, fill_of(row).num_planned);
  record.num_processed = num_tokens;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    if (slot_form(spec(group).kind) != SlotForm::kWindowed) continue;
    const int32_t first = tables_.first(group, row);
    RowProgress by = progress(row);
    if (mutated(Mutation::kWindowByScheduled)) by.processed = by.scheduled;  // F21
    const int32_t want = std::min(columns_for(spec(group), by, config_.num_spec).first, tables_.width(group, row));
    if (want <= first) continue;
    for (int32_t c = first; c < want; ++c) release_block(tables_.block(group, row, c));
    tables_.edit(row, changes_).in(group).set_first(want);
  }
}

void CacheManager::rollback(RowId row, int32_t num_tokens) {
  const RowRecord& record = state(row);
  RowFill& fill = fill_of(row);
  BZ_CHECK(!fill.in_next_plan() && num_tokens >= 0);
  BZ_CHECK_LE(num_tokens, fill.num_planned - std::max(record.num_processed, record.num_published));
  fill.num_scheduled -= num_tokens;
  fill.num_planned -= num_tokens;
}

void CacheManager::release(RowId row) {
  RowRecord& record = state(row);
  if (in_next_plan(row)) batch_.erase(std::find(batch_.begin(), batch_.end(), row));
  for (Transfer& t : transfers_) {
    if (t.row == row) t.row = kNullRow;  // its pins stay until its operations have finished (XFER-1)
  }
  // Last block first: of cached blocks the tail of a prompt is given up before its head.
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    for (int32_t c = tables_.width(group, row) - 1; c >= tables_.first(group, row); --c) {
      release_block(tables_.block(group, row, c));
    }
  }
  tables_.release_row(row, changes_);
  record = RowRecord{};
  fill_of(row) = RowFill{};
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
  for (RowId row : batch_) {
    RowFill& fill = fill_of(row);
    plan.rows.push_back({row, fill.num_planned, fill.num_scheduled - fill.num_planned});
    fill.num_planned = fill.num_scheduled;
    state(row).last_sequence = plan.sequence;
  }
  for (RowId row : forked_) {
    if (!is_live(row) || !state(row).forked) continue;
    state(row).forked = false;
    state(row).last_sequence = plan.sequence;
  }
  forked_.clear();
  changes_.clear();
  copies_.clear();
  batch_.clear();
  for (const BlockCopy& c : plan.copies) drop_copy_source(c.from);  // fenced by this plan, which reads it
  return true;
}

void CacheManager::processed(uint64_t sequence) {
  BZ_CHECK_LE(sequence, last_sequence());
  BZ_CHECK_GE(sequence, pool_.processed_sequence());
  pool_.processed(sequence);
}

Columns CacheManager::needed_columns(GroupId group, RowId row) const {
  return columns_for(spec(group), progress(row), config_.num_spec);
}

std::vector<BlockId> CacheManager::other_holds() const {
  std::vector<BlockId> holds = sinks_;
  for (const BlockCopy& c : copies_) {
    if (c.from != kNullBlock) holds.push_back(c.from);
  }
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
  for (const RowFill& f : fills_) add(f.num_scheduled, f.num_planned);
  for (const RowRecord& r : rows_) {
    add(r.num_processed, r.frozen, r.loading, r.sending, r.forked, r.last_sequence, r.num_published);
  }
  for (const TableChange& c : changes_) add(c.kind, c.group.value(), c.row.value(), c.column, c.value);
  for (const BlockCopy& c : copies_) add(c.from.value(), c.to.value());
  for (RowId row : batch_) add(row.value());
  for (const Transfer& t : transfers_) {
    add(t.state, t.kind, t.row.value(), t.ops_left, t.ops_running, t.failed, t.expired, t.deadline);
    for (const TransferBlock& b : t.blocks) add(b.group.value(), b.column, b.block.value());
  }
  return h.value();
}

}  // namespace bz::kv
