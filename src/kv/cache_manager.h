// CacheManager: the facade of the cache core. The engine (or another engine, through the C API) asks and acts here.
//
// Owned by the engine's scheduler, one thread at a time. Pure host code: it hands out row ids, plain tables and plans,
// never an address. Deterministic, copyable, comparable. Admission order and preemption are the caller's policy.
//
// A step:  admit rows, append(row, tokens) for each row of the batch, take_plan(plan), run it, processed(sequence).
// Questions (can_...) are pure; the act that follows a yes cannot fail, and an act never fails half way (KV-1).
//
// Invariants (checked by kv/integrity.h)
//   1. A block is owned exactly as often as rows, transfers, pending copies and sinks hold it; the null block never
//      (PAD-1). A block that a step may write has one owner (KV-6).
//   2. A released row's tables are nulled by the very next plan (PAD-3); its blocks are handed out again only after
//      every step that could touch them has been processed (KV-2).
//   3. Replaying the changes of all plans, in order, onto zeroed tables gives the host's tables (PAD-10).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/touch.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/cache_plan.h"
#include "kv/layout.h"
#include "kv/prefix_index.h"
#include "kv/rules.h"
#include "kv/transfers.h"

namespace bz::kv {

struct CacheConfig {
  std::vector<GroupSpec> groups;
  int32_t num_blocks = 0;                  // including block 0
  int32_t max_rows = 0;                    // table rows, including the null row
  int32_t max_seq_len = 0;                 // tokens of one request
  int32_t max_changes_per_plan = 1 << 16;  // what one step's staging holds
  int32_t num_spec = 0;                    // k: a verify step has 1 + k tokens
  int32_t max_in_flight = 0;               // tokens of a row scheduled beyond the processed ones; 0: max_seq_len
  int32_t max_encoder_tokens = 0;          // kCross
  int32_t max_transfers = 0;
  int64_t block_stride = 0;  // bytes; for transfers
  // Prefix cache; off unless prefix_cache is set.
  bool prefix_cache = false;
  bool recompute_last_block = false;  // a draft layer needs hidden states from before the first new token (EAGLE, MTP)
  int32_t snapshot_interval = 0;  // tokens between state snapshots, a multiple of the hash unit; 0: every hash block
  DigestFn digest = nullptr;      // SHA-256, injected; nullptr: the built-in keyed hash
  uint64_t hash_key = 0;

  bool operator==(const CacheConfig&) const = default;
};

CacheConfig make_cache_config(const Layout& layout, int32_t max_rows, int32_t max_seq_len);
// The tables that such a cache has, on the host and on every device.
std::vector<TableShape> table_shapes(const CacheConfig& config);
// Blocks that a request of so many tokens needs, alone in an empty cache; with the prefix cache a state that was
// published is copied before the row goes on (KV-6), so for a moment there are two.
int32_t num_blocks_for(const CacheConfig& config, int32_t num_tokens);
// Most block copies of one plan of max_tokens tokens: what its staging must hold, however many blocks there are.
// REQUIRES: a row is forked when it has blocks for its planned tokens only, as a prompt's row has.
int32_t max_copies_per_plan(const CacheConfig& config, int32_t max_tokens);

// Why a group supports no longer prefix than it does.
enum class MissReason : uint8_t {
  kNone,        // it supports all that was asked for
  kNotCached,   // the next block is not in the cache
  kWindowGone,  // the blocks of the window before it are not all in the cache
  kNoSnapshot,  // no state was kept there
  kUnaligned,   // cut to whole blocks or whole windows of a ring (RING-2)
  kDraftLayer,  // the last block is computed again for a draft layer
};
inline constexpr size_t kNumMissReasons = 6;
std::string_view miss_reason_name(MissReason reason);

// What find_prefix found. Good until the manager changes.
struct PrefixHit {
  int32_t num_tokens = 0;  // common to all groups
  struct Group {
    int32_t num_tokens = 0;  // what this group alone would support
    MissReason reason = MissReason::kNone;
  };
  std::array<Group, kMaxGroups> groups{};
  std::vector<PrefixIndex::NodeId> path;  // nodes of the hash blocks found
};

class CacheManager {
 public:
  // REQUIRES: num_blocks >= 2 (and enough for sinks), max_rows >= 2, max_seq_len >= 1, max_changes_per_plan >= 1.
  explicit CacheManager(const CacheConfig& config);

  // ---- rows ----
  // A row for a new request; it has no blocks and no tokens yet.
  bool can_admit() const { return tables_.num_free_rows() > 0; }
  RowId admit(int32_t encoder_tokens = 0);  // REQUIRES: can_admit().

  // Room for `num_tokens` more tokens of the row: blocks for every position below num_scheduled + num_tokens, and a
  // RowSpan in the next plan. Several appends to a row before a plan extend one span. With speculation reserve 1 + k.
  bool can_append(RowId row, int32_t num_tokens) const {
    const RowFill& fill = fill_of(row);
    return (num_tokens >= 1 && num_tokens <= fill.capacity - fill.num_scheduled) || can_make_room(row, num_tokens);
  }
  void append(RowId row, int32_t num_tokens) {  // REQUIRES: can_append(row, num_tokens), num_tokens >= 1.
    RowFill& fill = fill_of(row);
    // A row that is not live has no room: whatever is wrong with a call, make_room() finds it.
    if (num_tokens < 1 || num_tokens > fill.capacity - fill.num_scheduled) [[unlikely]]
      make_room(row, num_tokens);
    if (!fill.in_next_plan()) [[likely]]
      batch_.push_back(row);
    fill.num_scheduled += num_tokens;
  }

  // The results of steps were read: the row's first num_tokens tokens are in the cache for good. Windows move (KV-2).
  // REQUIRES: never decreasing, at most what was planned.
  void set_processed(RowId row, int32_t num_tokens);
  // Asks for what set_processed reads of rows up to `last` (base/touch.h).
  void fetch_rows(RowId last) const {
    const auto rows = static_cast<size_t>(last.value()) + 1;
    touch_all(std::span(fills_).first(rows));
    touch_all(std::span(rows_).first(rows));
    tables_.fetch_rows(rows);
  }
  // The last num_tokens planned tokens were rejected. REQUIRES: they are not processed; the row is not in the next
  // plan.
  void rollback(RowId row, int32_t num_tokens);

  // A second row with the same tokens: full blocks are shared, what either may write is copied by the next plan (KV-6).
  // REQUIRES (both): the row has no tokens in the next plan and is not loading.
  bool can_fork(RowId row) const;
  RowId fork(RowId row);

  // The row ends (finished, cancelled, preempted). Its blocks are free once the steps in flight are processed.
  void release(RowId row);

  // ---- plans ----
  // Moves what is pending into the plan and numbers it. True: the plan is complete and carries the step's rows. False:
  // more changes are pending than a plan holds; run this one as a change plan (it has no rows) and call again (PAD-10).
  [[nodiscard]] bool take_plan(CachePlan& plan);
  // Every plan up to `sequence` has finished on the device. REQUIRES: it was taken; never decreasing.
  void processed(uint64_t sequence);

  // ---- prefix cache ----
  // The longest prefix that every group supports, the last token excluded: its logits are wanted. Pure.
  void find_prefix(const PrefixQuery& query, PrefixHit& hit) const;
  // Admits a row that starts with the hit's tokens, and whether there are blocks for num_tokens more then, in chunks of
  // at most max_in_flight. All hits are taken before any block is allocated (KV-1). REQUIRES: nothing changed since
  // find_prefix.
  bool can_admit(const PrefixHit& hit, int32_t num_tokens) const;
  RowId admit(const PrefixHit& hit, int32_t encoder_tokens = 0);
  // Offers the row's blocks to later requests: all whole hash blocks of the query that taken plans compute (KV-3). The
  // query's tokens are the row's, from its first on, none of them speculative.
  // snapshot: column 0 holds the state after the row's last planned token (false after a verify step).
  void publish(RowId row, const PrefixQuery& query, bool snapshot = true);
  void reset_prefix_cache();
  const PrefixIndex& prefix_index() const { return index_; }

  // ---- transfers ----
  // Every plan of the row is processed, and a transfer is free. While it runs the row can be released, not appended to.
  bool can_send(RowId row) const;
  TransferId send(RowId row, int32_t num_ops, int64_t deadline);
  // A row without tokens waits for num_tokens of them to be loaded; until done it can only be released.
  bool can_receive(RowId row, int32_t num_tokens) const;
  TransferId receive(RowId row, int32_t num_tokens, int32_t num_ops);
  void begin_op(TransferId id);
  void finish_op(TransferId id, bool ok);
  void extend_lease(TransferId id, int64_t deadline);
  int32_t expire_leases(int64_t now);  // how many sends ended
  // Gives the id back. REQUIRES: not running. A failed receive leaves the row empty: recompute or release it.
  void close(TransferId id);
  const Transfer& transfer(TransferId id) const { return transfers_.at(static_cast<size_t>(id.value())); }

  // ---- what it is like ----
  const CacheConfig& config() const { return config_; }
  int32_t num_blocks() const { return pool_.num_blocks(); }
  // Blocks that requests can have: all but the null block and the sinks.
  int32_t num_usable_blocks() const { return num_blocks() - 1 - static_cast<int32_t>(sinks_.size()); }
  int32_t num_free_blocks() const { return pool_.num_free(); }      // can be handed out now
  int32_t num_fenced_blocks() const { return pool_.num_fenced(); }  // free once processed
  int32_t num_used_blocks() const { return pool_.num_owned(); }
  int32_t num_rows_in_use() const { return tables_.num_rows() - 1 - tables_.num_free_rows(); }
  bool is_live(RowId row) const { return tables_.is_claimed(row); }
  bool in_next_plan(RowId row) const { return fill_of(row).in_next_plan(); }
  int32_t num_scheduled(RowId row) const { return fill_of(row).num_scheduled; }  // tokens appended so far
  int32_t num_planned(RowId row) const { return fill_of(row).num_planned; }      // of those, in plans that were taken
  int32_t num_processed(RowId row) const { return state(row).num_processed; }
  int32_t num_blocks_for(int32_t num_tokens) const { return kv::num_blocks_for(config_, num_tokens); }

  uint64_t last_sequence() const { return next_sequence_ - 1; }  // of the plan taken last; 0: none yet
  const std::vector<TableChange>& pending_changes() const { return changes_; }
  const BlockTables& tables() const { return tables_; }
  const BlockPool& pool() const { return pool_; }
  // Blocks held otherwise than by a row: sinks, sources of pending copies, pins of transfers. With repeats.
  std::vector<BlockId> other_holds() const;
  // The columns a row must own now.
  Columns needed_columns(GroupId group, RowId row) const;
  // The block in column 0 is shared or cached: it is copied before a step writes it.
  bool is_frozen(GroupId group, RowId row) const { return (state(row).frozen >> group.value() & 1) != 0; }

  uint64_t hash() const;  // of the whole state
  bool operator==(const CacheManager&) const = default;

 private:
  // What every append looks at, in an array of its own: the rows of a large batch share few cache lines.
  struct RowFill {
    int32_t num_scheduled = 0;
    int32_t num_planned = 0;  // of num_scheduled, in plans that were taken
    int32_t capacity = 0;     // tokens that fit in the row's blocks; appends up to it touch no table. 0: not live
    bool in_next_plan() const { return num_scheduled > num_planned; }
    bool operator==(const RowFill&) const = default;
  };
  struct RowRecord {
    int32_t num_processed = 0;
    int32_t encoder_tokens = 0;
    uint32_t frozen = 0;                            // a bit per group
    bool loading = false;                           // a receive runs
    int32_t sending = 0;                            // sends that run: nothing may change what they read
    bool forked = false;                            // the copies of its fork are in no plan yet
    uint64_t last_sequence = 0;                     // of the row's last plan
    PrefixIndex::NodeId node = PrefixIndex::kRoot;  // of the last hash block published or hit
    uint64_t node_serial = 0;
    int32_t num_published = 0;  // tokens
    bool operator==(const RowRecord&) const = default;
  };

  const RowRecord& state(RowId row) const {
    BZ_CHECK(row != kNullRow && tables_.is_claimed(row));
    return rows_[static_cast<size_t>(row.value())];
  }
  RowRecord& state(RowId row) { return const_cast<RowRecord&>(std::as_const(*this).state(row)); }
  const RowFill& fill_of(RowId row) const {
    BZ_CHECK_LT(static_cast<uint32_t>(row.value()), static_cast<uint32_t>(config_.max_rows));
    return fills_[static_cast<size_t>(row.value())];
  }
  RowFill& fill_of(RowId row) { return const_cast<RowFill&>(std::as_const(*this).fill_of(row)); }
  const GroupSpec& spec(GroupId group) const { return config_.groups[static_cast<size_t>(group.value())]; }
  int32_t num_tables() const { return tables_.num_tables(); }
  RowProgress progress(RowId row) const {
    return {state(row).num_processed, fill_of(row).num_scheduled, state(row).encoder_tokens};
  }

  RowId new_row(int32_t num_tokens, int32_t encoder_tokens);
  int64_t widen(GroupId table, const RowRecord& record, int32_t total, int32_t& width) const;
  bool can_make_room(RowId row, int32_t num_tokens) const;
  void make_room(RowId row, int32_t num_tokens);
  void set_capacity(RowId row);
  BlockId take_block() {  // allocates; a cached block is forgotten
    const BlockId block = pool_.allocate();
    if (pool_.is_cached(block)) {
      index_.forget(block);
      pool_.set_cached(block, false);
    }
    return block;
  }
  BlockId new_block(const GrowthRule& rule) {  // for tokens to come
    const BlockId block = take_block();
    if (rule.zeroed && !mutated(Mutation::kNoZeroing)) copies_.push_back({kNullBlock, block});
    return block;
  }
  BlockId share(BlockId block) {  // one owner more
    pool_.add_ref(block);
    return block;
  }
  BlockId share_sink(const GrowthRule& rule, int32_t column) {
    return share(sinks_[static_cast<size_t>(rule.first_sink) + static_cast<size_t>(column)]);
  }
  // Puts sinks and block_of(column) into the columns of a new row's table.
  template <class BlockOf>
  void fill_table(GroupId table, RowId row, Columns columns, BlockOf block_of) {
    if (columns.width == 0) return;
    const GrowthRule& rule = rules_[static_cast<size_t>(table.value())];
    BlockTables::Row cells = tables_.edit(row, changes_).in(table);
    if (columns.first > 0) cells.set_first(columns.first);
    for (int32_t c = columns.first; c < columns.width; ++c)
      cells.set_block(c, c < rule.sinks ? share_sink(rule, c) : block_of(c));
    cells.set_width(columns.width);
  }
  void release_block(BlockId block);  // one owner less, fenced by the last plan
  void copy_block(BlockId from, BlockId to);
  void drop_copy_source(BlockId from) {
    if (from != kNullBlock) release_block(from);
  }
  void thaw(GroupId group, RowId row);
  BlockId cached_block(const PrefixHit& hit, GroupId group, int32_t end_token) const;
  int32_t supported_prefix(const PrefixHit& hit, GroupId group, int32_t limit, MissReason* reason) const;
  void publish_groups(RowId row, RowRecord& record, PrefixIndex::NodeId node, bool snapshot);
  TransferId new_transfer(TransferKind kind, RowId row, int32_t num_tokens, int32_t num_ops);
  void settle(Transfer& transfer);  // no operation is left
  void drop_pins(Transfer& transfer);

  CacheConfig config_;
  std::vector<GrowthRule> rules_;  // by table
  BlockPool pool_;
  BlockTables tables_;
  PrefixIndex index_;
  std::vector<RowRecord> rows_;       // [max_rows]
  std::vector<RowFill> fills_;        // [max_rows]
  std::vector<TableChange> changes_;  // pending, in order
  std::vector<BlockCopy> copies_;     // pending; each holds a reference to its source
  std::vector<RowId> batch_;          // rows of the next plan, in order
  std::vector<RowId> forked_;         // rows forked since the last plan
  std::vector<BlockId> sinks_;        // held for ever, by group then column
  std::vector<Transfer> transfers_;   // [max_transfers]
  uint64_t next_sequence_ = 1;
};

}  // namespace bz::kv
