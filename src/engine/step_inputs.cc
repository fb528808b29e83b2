#include "engine/step_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "base/mutation.h"

namespace bz::engine {
namespace {

// What every padded batch row holds (PAD-3).
constexpr ops::StagedRow kNullStagedRow{kv::kNullRow.value(), 0, 0, 0, 0, 0, 0, 0, {}};

// Writes the live rows; returns how many logits they want.
int32_t stage_rows(const StepPlan& plan, ops::StagedRow* staged) {
  int32_t history_start = 0, num_logits = 0;
  for (const PlanRow& row : plan.rows) {
    BZ_CHECK_LE(row.num_logits, row.query_len);
    BZ_CHECK_LE(row.num_samples, row.num_logits);
    *staged++ = {row.row.value(), row.query_len,   row.num_logits, row.num_samples, row.max_seq_len,
                 history_start,   row.history_len, row.next_token, row.sampling};
    history_start += row.history_len;
    num_logits += row.num_logits;
  }
  BZ_CHECK_EQ(history_start, static_cast<int32_t>(plan.history.size()));
  return num_logits;
}

}  // namespace

Result<StepInputs> StepInputs::create(device::Device& device, const StepLimits& limits) {
  BZ_CHECK_GT(limits.max_tokens, 0);
  BZ_CHECK_GT(limits.max_rows, 0);
  Offsets o;
  size_t bytes = round_up(sizeof(ops::StagedHeader), size_t{128});
  o.rows = bytes;
  bytes = round_up(bytes + sizeof(ops::StagedRow) * static_cast<size_t>(limits.max_rows), size_t{128});
  o.tokens = bytes;
  bytes = round_up(bytes + sizeof(int32_t) * static_cast<size_t>(limits.max_tokens), size_t{128});
  o.changes = bytes;
  bytes = round_up(bytes + sizeof(kv::TableChange) * static_cast<size_t>(limits.max_changes), size_t{128});
  o.history = bytes;
  bytes = round_up(bytes + sizeof(int32_t) * static_cast<size_t>(limits.max_history), size_t{128});
  o.biases = bytes;
  bytes = round_up(bytes + sizeof(ops::LogitBias) * static_cast<size_t>(limits.max_biases), size_t{128});
  o.copies = bytes;
  bytes = round_up(bytes + sizeof(kv::BlockCopy) * static_cast<size_t>(limits.max_copies), size_t{128});
  o.slot_bytes = bytes;
  BZ_ASSIGN(device::Buffer buffer, device.allocate_host_mapped(o.slot_bytes * kRingSlots));
  return StepInputs(std::move(buffer), limits, o);
}

ops::StagedSlot StepInputs::device_slot(int index) const {
  const std::byte* base = buffer_.device() + static_cast<size_t>(index) * offsets_.slot_bytes;
  return {reinterpret_cast<const ops::StagedHeader*>(base),
          reinterpret_cast<const ops::StagedRow*>(base + offsets_.rows),
          reinterpret_cast<const int32_t*>(base + offsets_.tokens),
          reinterpret_cast<const kv::TableChange*>(base + offsets_.changes),
          reinterpret_cast<const int32_t*>(base + offsets_.history),
          reinterpret_cast<const ops::LogitBias*>(base + offsets_.biases),
          reinterpret_cast<const kv::BlockCopy*>(base + offsets_.copies)};
}

StagedStep StepInputs::stage(const StepPlan& plan, const GraphKey& key) {
  const uint64_t sequence = plan.cache.sequence;
  const auto num_rows = static_cast<int32_t>(plan.rows.size());
  const auto num_tokens = static_cast<int32_t>(plan.tokens.size());
  const auto num_changes = static_cast<int32_t>(plan.cache.changes.size());
  BZ_CHECK_LE(num_rows, key.rows);
  BZ_CHECK_LE(num_tokens, key.tokens);
  BZ_CHECK_LE(key.rows, limits_.max_rows);
  BZ_CHECK_LE(key.tokens, limits_.max_tokens);
  BZ_CHECK_LE(num_changes, limits_.max_changes);
  BZ_CHECK_LE(plan.history.size(), static_cast<size_t>(limits_.max_history));
  BZ_CHECK_LE(plan.biases.size(), static_cast<size_t>(limits_.max_biases));
  BZ_CHECK_LE(plan.cache.copies.size(), static_cast<size_t>(limits_.max_copies));
  BZ_CHECK_GE(sequence, 1u);
  if (!mutated(Mutation::kStagingSlotReused)) BZ_CHECK_LE(sequence, last_released_ + kRingSlots);  // HOST-1

  if (plan.rows.empty() && mutated(Mutation::kDummySkipsStaging)) return {key, plan};

  std::byte* base = buffer_.host() + (sequence - 1) % kRingSlots * offsets_.slot_bytes;
  auto* rows = reinterpret_cast<ops::StagedRow*>(base + offsets_.rows);
  auto* tokens = reinterpret_cast<int32_t*>(base + offsets_.tokens);
  BZ_CHECK_LE(stage_rows(plan, rows), key.logits);
  std::copy(plan.tokens.begin(), plan.tokens.end(), tokens);
  if (!mutated(Mutation::kStageOnlyLiveRows)) std::fill(rows + num_rows, rows + key.rows, kNullStagedRow);
  std::fill(tokens + num_tokens, tokens + key.tokens, 0);
  std::copy(plan.cache.changes.begin(), plan.cache.changes.end(),
            reinterpret_cast<kv::TableChange*>(base + offsets_.changes));
  std::copy(plan.history.begin(), plan.history.end(), reinterpret_cast<int32_t*>(base + offsets_.history));
  std::copy(plan.biases.begin(), plan.biases.end(), reinterpret_cast<ops::LogitBias*>(base + offsets_.biases));
  std::copy(plan.cache.copies.begin(), plan.cache.copies.end(),
            reinterpret_cast<kv::BlockCopy*>(base + offsets_.copies));

  const bool all = mutated(Mutation::kCountPaddedAsValid);
  *reinterpret_cast<ops::StagedHeader*>(base) = {sequence, all ? key.rows : num_rows, all ? key.tokens : num_tokens,
                                                 num_changes, static_cast<int32_t>(plan.cache.copies.size())};
  return {key, plan};
}

void StepInputs::release(uint64_t sequence) {
  BZ_CHECK_GT(sequence, last_released_);
  last_released_ = sequence;
}

}  // namespace bz::engine
