// The C API over kv::CacheManager: conversions and nothing else.
#include "blockzero_kv.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "kv/cache_manager.h"
#include "kv/integrity.h"

namespace kv = bz::kv;

struct bz_kv_cache {
  explicit bz_kv_cache(const kv::CacheConfig& config) : manager(config) {}
  kv::CacheManager manager;
  kv::PrefixHit hit;
  kv::CachePlan plan;
  std::vector<bz_kv_change> changes;
  std::vector<bz_kv_copy> copies;
  std::vector<bz_kv_span> rows;
};

namespace {

void put(char* to, size_t size, const std::string& text) {
  if (to == nullptr || size == 0) return;
  const size_t n = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

constexpr int64_t kMaxTokensInBlock = 1 << 24;

std::string check_group(const bz_kv_group& g, int32_t i) {
  if (g.kind < BZ_KV_FULL || g.kind > BZ_KV_SINK) return fmt::format("group {}: kind {} is unknown", i, g.kind);
  if (g.block_size < 1) return fmt::format("group {}: block_size {} is below 1", i, g.block_size);
  const bool windowed = g.kind == BZ_KV_SLIDING_WINDOW || g.kind == BZ_KV_CHUNKED_LOCAL;
  if (windowed && g.window < 1) return fmt::format("group {}: window {} is below 1", i, g.window);
  if (g.ratio < 0 || g.sink_tokens < 0) return fmt::format("group {}: negative ratio or sink_tokens", i);
  if (g.cp_world > 1 && (g.cp_rank < 0 || g.cp_rank >= g.cp_world || g.kind != BZ_KV_FULL))
    return fmt::format("group {}: rank {} of {} context parallel ranks, for full groups only", i, g.cp_rank,
                       g.cp_world);
  int64_t tokens = 1;  // of a block
  for (int32_t factor : {g.block_size, std::max(1, g.ratio), std::max(1, g.cp_world)})
    tokens = std::min<int64_t>(tokens * factor, kMaxTokensInBlock + 1);
  if (tokens > kMaxTokensInBlock)
    return fmt::format("group {}: blocks of {} entries, ratio {}, {} ranks: a block may have {} tokens", i,
                       g.block_size, g.ratio, g.cp_world, kMaxTokensInBlock);
  if (g.cp_interleave > 1 && g.block_size % g.cp_interleave != 0)
    return fmt::format("group {}: cp_interleave {} does not divide block_size {}", i, g.cp_interleave, g.block_size);
  return "";
}

kv::GroupSpec group_of(const bz_kv_group& g) {
  kv::GroupSpec spec;
  spec.kind = static_cast<kv::CacheKind>(g.kind);
  spec.block_size = g.block_size;
  spec.window = g.window;
  spec.ratio = std::max(1, g.ratio);
  spec.snapshot = g.snapshot != 0;
  spec.sink_tokens = g.sink_tokens;
  spec.cp_world = std::max(1, g.cp_world);
  spec.cp_rank = g.cp_rank;
  spec.cp_interleave = std::max(1, g.cp_interleave);
  spec.zeroed = g.zeroed != 0;
  if (g.shares_table != 0) spec.table_of = g.table_of;
  return spec;
}

std::string check_table(const bz_kv_config& c, int32_t i) {
  const bz_kv_group& g = c.groups[i];
  if (g.shares_table == 0)
    return i > 0 && c.groups[i - 1].shares_table != 0
               ? fmt::format("group {}: has a table of its own, so it comes before those that share one", i)
               : "";
  if (g.table_of < 0 || g.table_of >= i)
    return fmt::format("group {}: table_of {} is no group before it", i, g.table_of);
  if (!kv::can_share_table(group_of(c.groups[g.table_of]), group_of(g)))
    return fmt::format("group {}: its entries cannot lie in the blocks of group {}", i, g.table_of);
  return "";
}

std::string check_config(const bz_kv_config& c) {
  if (c.num_groups < 1 || c.num_groups > kv::kMaxGroups)
    return fmt::format("{} groups; 1 to {} are possible", c.num_groups, kv::kMaxGroups);
  if (c.num_blocks < 2) return fmt::format("num_blocks {}: block 0 and one more are the least", c.num_blocks);
  if (c.max_rows < 2) return fmt::format("max_rows {}: row 0 and one more are the least", c.max_rows);
  if (c.max_seq_len < 1) return fmt::format("max_seq_len {} is below 1", c.max_seq_len);
  if (c.num_spec < 0 || c.max_changes_per_plan < 0 || c.max_in_flight < 0 || c.max_encoder_tokens < 0 ||
      c.snapshot_interval < 0 || c.max_transfers < 0 || c.block_stride < 0)
    return "a count is negative";
  int64_t sinks = 0;
  for (int32_t i = 0; i < c.num_groups; ++i) {
    std::string error = check_group(c.groups[i], i);
    if (error.empty()) error = check_table(c, i);
    if (!error.empty()) return error;
    sinks += kv::sink_columns(group_of(c.groups[i]));
  }
  if (sinks >= c.num_blocks - 1) return fmt::format("{} blocks leave none beside {} sinks", c.num_blocks, sinks);
  return "";
}

kv::PrefixQuery query_of(const int32_t* tokens, int32_t n, const bz_kv_identity* identity) {
  kv::PrefixQuery query{{tokens, static_cast<size_t>(n)}};
  if (identity != nullptr) query.identity = {{identity->tenant_salt[0], identity->tenant_salt[1]}, identity->adapter};
  return query;
}

kv::GroupView view_of(const bz_kv_cache* cache, int32_t group) {
  return cache->manager.tables().view(kv::GroupId(group));
}

}  // namespace

bz_kv_cache* bz_kv_create(const bz_kv_config* config, char* error, size_t error_size) {
  const std::string reason = config == nullptr ? "no config" : check_config(*config);
  if (!reason.empty()) {
    put(error, error_size, reason);
    return nullptr;
  }
  kv::CacheConfig c;
  for (int32_t i = 0; i < config->num_groups; ++i) c.groups.push_back(group_of(config->groups[i]));
  c.num_blocks = config->num_blocks;
  c.max_rows = config->max_rows;
  c.max_seq_len = config->max_seq_len;
  if (config->max_changes_per_plan > 0) c.max_changes_per_plan = config->max_changes_per_plan;
  c.num_spec = config->num_spec;
  c.max_in_flight = config->max_in_flight;
  c.max_encoder_tokens = config->max_encoder_tokens;
  c.prefix_cache = config->prefix_cache != 0;
  c.snapshot_interval = config->snapshot_interval;
  c.hash_key = config->hash_key;
  c.recompute_last_block = config->recompute_last_block != 0;
  c.max_transfers = config->max_transfers;
  c.block_stride = config->block_stride;
  return new bz_kv_cache(c);
}
void bz_kv_destroy(bz_kv_cache* cache) { delete cache; }

int bz_kv_can_admit(const bz_kv_cache* cache) { return cache->manager.can_admit(); }
int32_t bz_kv_admit(bz_kv_cache* cache, int32_t encoder_tokens) { return cache->manager.admit(encoder_tokens).value(); }
int bz_kv_can_append(const bz_kv_cache* cache, int32_t row, int32_t num_tokens) {
  return cache->manager.can_append(kv::RowId(row), num_tokens);
}
void bz_kv_append(bz_kv_cache* cache, int32_t row, int32_t num_tokens) {
  cache->manager.append(kv::RowId(row), num_tokens);
}
void bz_kv_set_processed(bz_kv_cache* cache, int32_t row, int32_t num_tokens) {
  cache->manager.set_processed(kv::RowId(row), num_tokens);
}
void bz_kv_rollback(bz_kv_cache* cache, int32_t row, int32_t num_tokens) {
  cache->manager.rollback(kv::RowId(row), num_tokens);
}
int bz_kv_can_fork(const bz_kv_cache* cache, int32_t row) { return cache->manager.can_fork(kv::RowId(row)); }
int32_t bz_kv_fork(bz_kv_cache* cache, int32_t row) { return cache->manager.fork(kv::RowId(row)).value(); }
void bz_kv_release(bz_kv_cache* cache, int32_t row) { cache->manager.release(kv::RowId(row)); }
int32_t bz_kv_num_scheduled(const bz_kv_cache* cache, int32_t row) {
  return cache->manager.num_scheduled(kv::RowId(row));
}

int32_t bz_kv_find_prefix(bz_kv_cache* cache, const int32_t* tokens, int32_t num_tokens,
                          const bz_kv_identity* identity) {
  cache->manager.find_prefix(query_of(tokens, num_tokens, identity), cache->hit);
  return cache->hit.num_tokens;
}
int bz_kv_can_admit_hit(const bz_kv_cache* cache, int32_t num_tokens) {
  return cache->manager.can_admit(cache->hit, num_tokens);
}
int32_t bz_kv_admit_hit(bz_kv_cache* cache, int32_t encoder_tokens) {
  return cache->manager.admit(cache->hit, encoder_tokens).value();
}
void bz_kv_publish(bz_kv_cache* cache, int32_t row, const int32_t* tokens, int32_t num_tokens,
                   const bz_kv_identity* identity) {
  cache->manager.publish(kv::RowId(row), query_of(tokens, num_tokens, identity));
}

void bz_kv_take_plan(bz_kv_cache* cache, bz_kv_plan* plan) {
  plan->complete = cache->manager.take_plan(cache->plan);
  cache->changes.clear();
  for (const kv::TableChange& c : cache->plan.changes)
    cache->changes.push_back({static_cast<int32_t>(c.kind), c.group.value(), c.row.value(), c.column, c.value});
  cache->copies.clear();
  for (const kv::BlockCopy& c : cache->plan.copies) cache->copies.push_back({c.from.value(), c.to.value()});
  cache->rows.clear();
  for (const kv::RowSpan& s : cache->plan.rows) cache->rows.push_back({s.row.value(), s.start, s.query_len});
  plan->sequence = cache->plan.sequence;
  plan->changes = cache->changes.data();
  plan->num_changes = static_cast<int32_t>(cache->changes.size());
  plan->copies = cache->copies.data();
  plan->num_copies = static_cast<int32_t>(cache->copies.size());
  plan->rows = cache->rows.data();
  plan->num_rows = static_cast<int32_t>(cache->rows.size());
}
void bz_kv_processed(bz_kv_cache* cache, uint64_t sequence) { cache->manager.processed(sequence); }

bz_kv_table bz_kv_host_table(const bz_kv_cache* cache, int32_t group) {
  static_assert(sizeof(kv::BlockId) == sizeof(uint32_t));
  const kv::GroupView v = view_of(cache, group);
  return {reinterpret_cast<const uint32_t*>(v.table), v.width, v.first, v.num_rows, v.max_blocks_per_row};
}
int64_t bz_kv_write_slot(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t position, int32_t seq_end) {
  return kv::write_slot(view_of(cache, group), kv::RowId(row), position, seq_end).value();
}
int64_t bz_kv_entry_slot(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t entry) {
  return kv::entry_slot(view_of(cache, group), kv::RowId(row), entry).value();
}
uint32_t bz_kv_state(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t column) {
  return kv::state_of(view_of(cache, group), kv::RowId(row), column).value();
}

int bz_kv_can_send(const bz_kv_cache* cache, int32_t row) { return cache->manager.can_send(kv::RowId(row)); }
int32_t bz_kv_send(bz_kv_cache* cache, int32_t row, int32_t num_ops, int64_t deadline) {
  return cache->manager.send(kv::RowId(row), num_ops, deadline).value();
}
int bz_kv_can_receive(const bz_kv_cache* cache, int32_t row, int32_t num_tokens) {
  return cache->manager.can_receive(kv::RowId(row), num_tokens);
}
int32_t bz_kv_receive(bz_kv_cache* cache, int32_t row, int32_t num_tokens, int32_t num_ops) {
  return cache->manager.receive(kv::RowId(row), num_tokens, num_ops).value();
}
int32_t bz_kv_transfer_pieces(const bz_kv_cache* cache, int32_t transfer, bz_kv_piece* pieces, int32_t size) {
  std::vector<kv::Piece> all;
  kv::pieces_of(cache->manager.transfer(kv::TransferId(transfer)), cache->manager.config().block_stride, all);
  for (size_t i = 0; i < all.size() && static_cast<int32_t>(i) < size; ++i) pieces[i] = {all[i].offset, all[i].length};
  return static_cast<int32_t>(all.size());
}
bz_kv_transfer_state bz_kv_transfer(const bz_kv_cache* cache, int32_t transfer) {
  return static_cast<bz_kv_transfer_state>(cache->manager.transfer(kv::TransferId(transfer)).state);
}
void bz_kv_begin_op(bz_kv_cache* cache, int32_t transfer) { cache->manager.begin_op(kv::TransferId(transfer)); }
void bz_kv_finish_op(bz_kv_cache* cache, int32_t transfer, int ok) {
  cache->manager.finish_op(kv::TransferId(transfer), ok != 0);
}
void bz_kv_extend_lease(bz_kv_cache* cache, int32_t transfer, int64_t deadline) {
  cache->manager.extend_lease(kv::TransferId(transfer), deadline);
}
int32_t bz_kv_expire_leases(bz_kv_cache* cache, int64_t now) { return cache->manager.expire_leases(now); }
void bz_kv_close_transfer(bz_kv_cache* cache, int32_t transfer) { cache->manager.close(kv::TransferId(transfer)); }

int32_t bz_kv_num_free_blocks(const bz_kv_cache* cache) { return cache->manager.num_free_blocks(); }
int32_t bz_kv_num_fenced_blocks(const bz_kv_cache* cache) { return cache->manager.num_fenced_blocks(); }
int32_t bz_kv_num_used_blocks(const bz_kv_cache* cache) { return cache->manager.num_used_blocks(); }
int32_t bz_kv_check(const bz_kv_cache* cache, char* error, size_t error_size) {
  const std::vector<std::string> lines = kv::check_integrity(cache->manager);
  put(error, error_size, lines.empty() ? "" : lines[0]);
  return static_cast<int32_t>(lines.size());
}
