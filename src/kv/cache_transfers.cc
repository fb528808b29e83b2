// Transfers: pins, leases, loads that succeed or fail (XFER-1, KV-2, KV-3).
#include <algorithm>

#include "base/mutation.h"
#include "kv/cache_manager.h"

namespace bz::kv {
namespace {

auto find_free(std::vector<Transfer>& transfers) {
  return std::find_if(transfers.begin(), transfers.end(),
                      [](const Transfer& t) { return t.state == TransferState::kFree; });
}
bool has_free(const std::vector<Transfer>& transfers) {
  return std::any_of(transfers.begin(), transfers.end(),
                     [](const Transfer& t) { return t.state == TransferState::kFree; });
}

}  // namespace

TransferId CacheManager::new_transfer(TransferKind kind, RowId row, int32_t num_tokens, int32_t num_ops) {
  const auto it = find_free(transfers_);
  BZ_CHECK(it != transfers_.end());
  BZ_CHECK_GE(num_ops, 1);
  std::vector<TransferBlock> blocks = std::move(it->blocks);  // keeps its capacity
  blocks.clear();
  *it = Transfer{TransferState::kRunning, kind, row, num_tokens, num_ops};
  it->blocks = std::move(blocks);
  return TransferId(static_cast<int32_t>(it - transfers_.begin()));
}

bool CacheManager::can_send(RowId row) const {
  const RowRecord& record = state(row);
  return has_free(transfers_) && !record.loading && !record.forked && !in_next_plan(row) && num_planned(row) > 0 &&
         record.last_sequence <= pool_.processed_sequence();
}

TransferId CacheManager::send(RowId row, int32_t num_ops, int64_t deadline) {
  BZ_CHECK(can_send(row));
  const TransferId id = new_transfer(TransferKind::kSend, row, num_planned(row), num_ops);
  Transfer& t = transfers_[static_cast<size_t>(id.value())];
  t.deadline = deadline;
  ++state(row).sending;
  fill_of(row).capacity = 0;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    for (int32_t c = tables_.first(group, row); c < tables_.width(group, row); ++c) {
      t.blocks.push_back({group, c, tables_.block(group, row, c)});
      pool_.add_ref(t.blocks.back().block);
    }
  }
  return id;
}

bool CacheManager::can_receive(RowId row, int32_t num_tokens) const {
  const RowRecord& record = state(row);
  BZ_CHECK_GE(num_tokens, 1);
  if (num_scheduled(row) != 0 || record.loading || !has_free(transfers_)) return false;
  return can_append(row, num_tokens);
}

// The blocks wait in the transfer, not in the tables: no step can name them before they have landed.
TransferId CacheManager::receive(RowId row, int32_t num_tokens, int32_t num_ops) {
  BZ_CHECK(can_receive(row, num_tokens));
  const TransferId id = new_transfer(TransferKind::kReceive, row, num_tokens, num_ops);
  Transfer& t = transfers_[static_cast<size_t>(id.value())];
  RowRecord& record = state(row);
  const RowProgress landed{num_tokens, num_tokens, record.encoder_tokens};
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const Columns columns = columns_for(spec(group), landed, config_.num_spec);
    for (int32_t c = std::max(columns.first, sink_columns(spec(group))); c < columns.width; ++c) {
      t.blocks.push_back({group, c, take_block()});
    }
  }
  record.loading = true;
  return id;
}

void CacheManager::begin_op(TransferId id) {
  Transfer& t = transfers_.at(static_cast<size_t>(id.value()));
  BZ_CHECK(t.state == TransferState::kRunning);
  BZ_CHECK_LT(t.ops_running, t.ops_left);
  ++t.ops_running;
}

void CacheManager::finish_op(TransferId id, bool ok) {
  Transfer& t = transfers_.at(static_cast<size_t>(id.value()));
  BZ_CHECK(t.state == TransferState::kRunning);
  BZ_CHECK_GT(t.ops_running, 0);
  --t.ops_running;
  --t.ops_left;
  t.failed = t.failed || !ok;
  // After a failure no further operation begins; those that run are waited for.
  if (t.ops_left == 0 || ((t.failed || t.expired) && t.ops_running == 0)) settle(t);
}

// Drops the pins. What was received whole goes into the row's tables; what was not goes nowhere.
void CacheManager::settle(Transfer& t) {
  BZ_CHECK_EQ(t.ops_running, 0);
  const bool ok = t.ops_left == 0 && (!t.failed || mutated(Mutation::kFailedLoadIsTaken));
  t.state = ok ? TransferState::kDone : TransferState::kFailed;
  if (t.kind == TransferKind::kSend && t.row != kNullRow) {
    --state(t.row).sending;
    set_capacity(t.row);
  }
  if (t.kind == TransferKind::kReceive && t.row != kNullRow) {
    RowRecord& record = state(t.row);
    BZ_CHECK(record.loading);
    record.loading = false;
    if (ok) {
      fill_of(t.row) = {t.num_tokens, t.num_tokens, 0};
      record.num_processed = t.num_tokens;
      auto next = t.blocks.begin();
      for (int32_t g = 0; g < num_tables(); ++g) {
        fill_table(GroupId(g), t.row, columns_for(spec(GroupId(g)), progress(t.row), config_.num_spec), [&](int32_t c) {
          BZ_CHECK(next->group == GroupId(g) && next->column == c);
          return share((next++)->block);
        });
      }
      changes_.emplace_back(ChangeKind::kRowStart, GroupId(0), t.row, 0, static_cast<uint32_t>(t.num_tokens));
      set_capacity(t.row);
    }
  }
  drop_pins(t);
}

void CacheManager::drop_pins(Transfer& t) {
  for (const TransferBlock& b : t.blocks) release_block(b.block);
  t.blocks.clear();
}

void CacheManager::extend_lease(TransferId id, int64_t deadline) {
  Transfer& t = transfers_.at(static_cast<size_t>(id.value()));
  BZ_CHECK(t.kind == TransferKind::kSend);
  BZ_CHECK(t.state != TransferState::kFree);
  t.deadline = std::max(t.deadline, deadline);
}

int32_t CacheManager::expire_leases(int64_t now) {
  int32_t ended = 0;
  for (Transfer& t : transfers_) {
    if (t.state != TransferState::kRunning || t.kind != TransferKind::kSend || now <= t.deadline) continue;
    t.expired = true;
    if (mutated(Mutation::kPinsDroppedEarly)) drop_pins(t);
    if (t.ops_running > 0) continue;  // an operation cannot be aborted: the last one to finish ends it
    settle(t);
    ++ended;
  }
  return ended;
}

void CacheManager::close(TransferId id) {
  Transfer& t = transfers_.at(static_cast<size_t>(id.value()));
  BZ_CHECK(t.state == TransferState::kDone || t.state == TransferState::kFailed);
  BZ_CHECK(t.blocks.empty());
  t.state = TransferState::kFree;
  t.row = kNullRow;
}

}  // namespace bz::kv
