#include "sim/shadow_model.h"

#include <algorithm>

#include "device/null/null_stream.h"
#include "kv/hash.h"
#include "sim/cache_mixes.h"

namespace bz::sim {
namespace {

struct ShadowParams {
  ShadowModel* model;
  void (*run)(ShadowModel*, const ops::StepView&);
  ops::StepView view;
};

constexpr uint64_t kRejected = 0xbad0bad0bad0bad0u;  // the entry of a draft: nobody may see it

}  // namespace

ShadowModel::ShadowModel(std::vector<kv::GroupSpec> groups, int32_t vocab_size, int32_t max_model_len)
    : groups_(std::move(groups)), vocab_size_(vocab_size), max_model_len_(max_model_len) {}

void ShadowModel::expect(std::shared_ptr<const Client> client) {
  const uint64_t seed = client->seed();
  Known known{std::move(client), {}};
  kv::Hasher hash;
  for (const int32_t token : known.tokens()) {
    hash.add(static_cast<uint64_t>(token));
    known.contents.push_back(hash.value());
  }
  BZ_CHECK(requests_.emplace(seed, std::move(known)).second);
}

void ShadowModel::forward(const models::ForwardContext& ctx) {
  const ShadowParams params{this, [](ShadowModel* model, const ops::StepView& view) { model->run(view); }, ctx.view};
  device::null::enqueue<ShadowParams>(ctx.stream, params, [](const ShadowParams& p) { p.run(p.model, p.view); });
}

// A group's entry `offset` of a block.
uint64_t& ShadowModel::cell(kv::GroupId group, int32_t block, int32_t offset) {
  const device::SlabRequest& request = slabs_->request();
  const int64_t part = part_offset(groups_[static_cast<size_t>(group.value())], group);
  BZ_CHECK(block > 0 && block < request.num_blocks && offset >= 0);
  BZ_CHECK_LE((offset + 1) * kEntryBytes, kPartBytes);
  return reinterpret_cast<uint64_t*>(slabs_->base() + block * request.block_stride + part)[offset];
}

void ShadowModel::run(const ops::StepView& view) {
  const int32_t num_rows = view.num_valid_rows->value();
  check_padding(view, num_rows, view.num_valid_tokens->value());
  for (int32_t b = 0; b < num_rows && error_.empty(); ++b) run_row(view, b);
}

// PAD-3: what is not live names the null row and has a slot nowhere.
void ShadowModel::check_padding(const ops::StepView& view, int32_t num_rows, int32_t num_tokens) {
  for (int32_t b = num_rows; b < view.padded_rows; ++b) {
    if (view.row_index[b] != 0 || view.seq_len[b] != 0) fail("padded row {} names table row {}", b, view.row_index[b]);
  }
  for (int32_t t = num_tokens; t < view.padded_tokens; ++t) {
    for (int32_t g = 0; g < view.num_groups; ++g) {
      const kv::SlotId slot = view.groups[g].slots[t];
      if (slot != kv::kPadSlot) fail("padded token {} has slot {} in group {}", t, slot.value(), g);
    }
  }
}

void ShadowModel::run_row(const ops::StepView& view, int32_t b) {
  const int32_t first = view.query_start[b], count = view.query_start[b + 1] - first;
  const auto found = requests_.find(sampling_[b].seed);
  if (found == requests_.end()) return fail("batch row {} belongs to no request", b);
  Row row{kv::RowId(view.row_index[b]), first, view.seq_len[b] - count, view.seq_len[b], 0, &found->second};
  // It ended while change plans went ahead of its step: nobody wants the token.
  if (row.table_row == kv::kNullRow && row.known->client->finished()) return;
  if (row.table_row == kv::kNullRow) return fail("batch row {} is live but names the null row", b);
  const auto num_known = static_cast<int32_t>(row.known->tokens().size());
  if (row.start < 0 || row.start >= num_known) {
    return fail("row {} is at tokens {} to {} of {}", row.table_row.value(), row.start, row.end, num_known);
  }
  row.known_end = row.start;
  const auto is_known = [&](int32_t position) {
    const int32_t t = first + position - row.start;
    return position < num_known && view.positions[t] == position &&
           view.token_ids[t] == row.known->tokens()[static_cast<size_t>(position)];
  };
  while (row.known_end < row.end && is_known(row.known_end)) ++row.known_end;
  // Of several tokens that are sampled after, all but the first are drafts (speculation).
  if (row.known_end < row.end && (sample_row_[b] <= 1 || row.known_end == row.start)) {
    const int32_t t = first + row.known_end - row.start;
    fail("row {} position {}: token {} at position {} is not the row's", row.table_row.value(), row.known_end,
         view.token_ids[t], view.positions[t]);
  }
  for (size_t g = 0; g < groups_.size(); ++g) run_group(view.groups[g], groups_[g], row);
}

void ShadowModel::run_group(const ops::GroupStep& group, const kv::GroupSpec& spec, const Row& row) {
  const kv::GroupView& g = group.view;
  switch (spec.kind) {
    case kv::CacheKind::kCross: return;  // no encoder, no entries
    case kv::CacheKind::kState: return run_state(g, row);
    case kv::CacheKind::kRing:
      // A chunk longer than the ring reads the old rows before it writes.
      check_reads(g, spec, row, row.start);
      return write(group, spec, row);
    default: break;
  }
  write(group, spec, row);
  const bool sees_all = kv::slot_form(spec.kind) != kv::SlotForm::kWindowed;  // what the last query sees has it all
  for (int32_t p = sees_all ? row.known_end - 1 : row.start; p < row.known_end; ++p) check_reads(g, spec, row, p);
}

void ShadowModel::write(const ops::GroupStep& group, const kv::GroupSpec& spec, const Row& row) {
  for (int32_t p = row.start; p < row.end; ++p) {
    const kv::SlotId slot = group.slots[row.first_token + p - row.start];
    const bool closes = (p + 1) % spec.ratio == 0;
    const bool elsewhere = p / spec.cp_interleave % spec.cp_world != spec.cp_rank ||  // of another rank
                           (spec.kind == kv::CacheKind::kCompressed && !closes) ||
                           (spec.kind == kv::CacheKind::kRing && p < row.end - spec.block_size);
    if (elsewhere != (slot == kv::kPadSlot)) {
      return fail("row {} group {} position {}: slot {}", row.table_row.value(), group.view.group.value(), p,
                  slot.value());
    }
    if (elsewhere) continue;
    const auto block = static_cast<int32_t>(slot.value() / spec.block_size);
    if (block == 0) return fail("row {} writes into the null block", row.table_row.value());
    cell(group.view.group, block, static_cast<int32_t>(slot.value() % spec.block_size)) =
        p < row.known_end ? row.known->contents[static_cast<size_t>(p)] : kRejected;
  }
}

// STATE-1: a fresh row starts from nothing, any other from the state after its last token.
void ShadowModel::run_state(const kv::GroupView& g, const Row& row) {
  const auto block = static_cast<int32_t>(kv::state_of(g, row.table_row, 0).value());
  if (block == 0) return fail("row {} has no state in group {}", row.table_row.value(), g.group.value());
  if (row.start > 0 && cell(g.group, block, 0) != row.known->contents[static_cast<size_t>(row.start - 1)]) {
    return fail("row {}: the state in block {} of group {} is not the row's", row.table_row.value(), block,
                g.group.value());
  }
  cell(g.group, block, 0) = row.known->contents[static_cast<size_t>(row.end - 1)];
}

// Every entry that a query at `position` may see.
void ShadowModel::check_reads(const kv::GroupView& g, const kv::GroupSpec& spec, const Row& row, int32_t position) {
  if (spec.kind == kv::CacheKind::kCompressed) {
    for (int32_t e = 0; e < (position + 1) / spec.ratio; ++e) {
      expect_entry(g, row, e, e * spec.ratio + spec.ratio - 1);
    }
    return;
  }
  int32_t from = 0, to = position + 1;
  if (spec.kind == kv::CacheKind::kSlidingWindow) from = std::max(0, position + 1 - spec.window);
  if (spec.kind == kv::CacheKind::kChunkedLocal) from = position - position % spec.window;
  if (spec.kind == kv::CacheKind::kRing) {
    // Rows of the open window (and the one before it, where they overlap) that are older than the step.
    from = std::max(0, position / spec.ratio * spec.ratio - (spec.snapshot ? spec.ratio : 0));
    to = position;
  }
  for (int32_t p = from; p < to; ++p) {
    if (p / spec.cp_interleave % spec.cp_world == spec.cp_rank) expect_entry(g, row, p, p);
  }
}

void ShadowModel::expect_entry(const kv::GroupView& g, const Row& row, int32_t entry, int32_t position) {
  const kv::SlotId slot = kv::entry_slot(g, row.table_row, entry);
  if (slot == kv::kPadSlot) {
    return fail("row {} group {}: the entry of position {} is nowhere", row.table_row.value(), g.group.value(),
                position);
  }
  const auto block = static_cast<int32_t>(slot.value() / g.block_size);
  if (cell(g.group, block, static_cast<int32_t>(slot.value() % g.block_size)) !=
      row.known->contents[static_cast<size_t>(position)]) {
    fail("row {} group {}: block {} does not hold the row's entry of position {}", row.table_row.value(),
         g.group.value(), block, position);
  }
}

}  // namespace bz::sim
