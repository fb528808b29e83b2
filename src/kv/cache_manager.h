// CacheManager: the facade of the cache core. The engine (or another engine, through the C API) asks and acts here.
//
// Owned by the engine's scheduler, one thread at a time. Pure host code: it hands out row ids, plain tables and plans,
// never an address. Deterministic, copyable, comparable. Admission order and preemption are the caller's policy.
//
// A step:  admit rows, append(row, tokens) for each row of the batch, take_plan(plan), run it, processed(sequence).
// Questions (can_...) are pure; the act that follows a yes cannot fail, and an act never fails half way (KV-1).
//
// Invariants (checked by kv/integrity.h)
//   1. A block is owned exactly as often as live rows hold it; the null block never (PAD-1).
//   2. A released row's tables are nulled by the very next plan (PAD-3); its blocks are handed out again only after
//      every step that could touch them has been processed (KV-2).
//   3. Replaying the changes of all plans, in order, onto zeroed tables gives the host's tables (PAD-10).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/cache_plan.h"
#include "kv/layout.h"

namespace bz::kv {

struct CacheConfig {
  std::vector<GroupSpec> groups;
  int32_t num_blocks = 0;                  // including block 0
  int32_t max_rows = 0;                    // table rows, including the null row
  int32_t max_seq_len = 0;                 // tokens of one request
  int32_t max_changes_per_plan = 1 << 16;  // what one step's staging holds

  bool operator==(const CacheConfig&) const = default;
};

CacheConfig make_cache_config(const Layout& layout, int32_t max_rows, int32_t max_seq_len);

class CacheManager {
 public:
  // REQUIRES: num_blocks >= 2, max_rows >= 2, max_seq_len >= 1, max_changes_per_plan >= 1.
  explicit CacheManager(const CacheConfig& config);

  // A row for a new request; it has no blocks and no tokens yet.
  bool can_admit() const { return tables_.num_free_rows() > 0; }
  RowId admit();  // REQUIRES: can_admit().

  // Room for `num_tokens` more tokens of the row: blocks for every position below num_scheduled + num_tokens, and a
  // RowSpan in the next plan. Several appends to a row before a plan extend one span. With speculation reserve 1 + k.
  bool can_append(RowId row, int32_t num_tokens) const;
  void append(RowId row, int32_t num_tokens);  // REQUIRES: can_append(row, num_tokens), num_tokens >= 1.

  // The row ends (finished, cancelled, preempted). Its blocks are free once the steps in flight are processed.
  void release(RowId row);

  // Moves what is pending into the plan and numbers it. True: the plan is complete and carries the step's rows. False:
  // more changes are pending than a plan holds; run this one as a change plan (it has no rows) and call again (PAD-10).
  [[nodiscard]] bool take_plan(CachePlan& plan);

  // Every plan up to `sequence` has finished on the device. REQUIRES: it was taken; never decreasing.
  void processed(uint64_t sequence);

  const CacheConfig& config() const { return config_; }
  int32_t num_blocks() const { return pool_.num_blocks(); }
  int32_t num_free_blocks() const { return pool_.num_free(); }      // can be handed out now
  int32_t num_fenced_blocks() const { return pool_.num_fenced(); }  // free once processed
  int32_t num_used_blocks() const { return pool_.num_owned(); }
  double usage() const;  // share of the usable blocks that rows own, 0 to 1
  int32_t num_rows_in_use() const { return tables_.num_rows() - 1 - tables_.num_free_rows(); }
  bool is_live(RowId row) const { return tables_.is_claimed(row); }
  int32_t num_scheduled(RowId row) const { return state(row).num_scheduled; }  // tokens appended so far
  // Blocks that a request of so many tokens needs, alone in an empty cache.
  int32_t num_blocks_for(int32_t num_tokens) const;

  uint64_t last_sequence() const { return next_sequence_ - 1; }  // of the plan taken last; 0: none yet
  const std::vector<TableChange>& pending_changes() const { return changes_; }
  const BlockTables& tables() const { return tables_; }
  const BlockPool& pool() const { return pool_; }

  uint64_t hash() const;  // of the whole state
  bool operator==(const CacheManager&) const = default;

 private:
  struct RowRecord {
    int32_t num_scheduled = 0;
    int32_t capacity = 0;  // tokens that fit in the blocks the row has; appends below it touch no table
    int32_t span = -1;     // index into spans_, -1: not in the next plan
    bool operator==(const RowRecord&) const = default;
  };

  const RowRecord& state(RowId row) const {
    BZ_CHECK(row != kNullRow && tables_.is_claimed(row));
    return rows_[static_cast<size_t>(row.value())];
  }
  RowRecord& state(RowId row) { return const_cast<RowRecord&>(std::as_const(*this).state(row)); }
  void grow(RowId row, RowRecord& record, int32_t num_tokens);
  void drop_span(RowRecord& record);

  CacheConfig config_;
  BlockPool pool_;
  BlockTables tables_;
  std::vector<RowRecord> rows_;       // [max_rows]
  std::vector<TableChange> changes_;  // pending, in order
  std::vector<BlockCopy> copies_;     // pending
  std::vector<RowSpan> spans_;        // of the next plan
  uint64_t next_sequence_ = 1;
};

}  // namespace bz::kv
