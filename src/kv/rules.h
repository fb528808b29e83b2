// What each cache kind needs, as pure functions of its spec: columns for a row, columns of a table, tokens in a block.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "kv/spec.h"

namespace bz::kv {

// What bounds every row; fixed at start-up.
struct RowLimits {
  int32_t max_seq_len = 0;
  int32_t max_in_flight = 0;  // tokens scheduled beyond the processed ones, at most
  int32_t num_spec = 0;       // k: a verify step has 1 + k tokens
  int32_t max_encoder_tokens = 0;
};

struct RowProgress {
  int32_t processed = 0;  // tokens whose step has finished: the next query's position is not below this
  int32_t scheduled = 0;  // tokens that steps were planned for
  int32_t encoder_tokens = 0;
};

struct Columns {
  int32_t first = 0;
  int32_t width = 0;
};

// Tokens that one block covers; 0: the kind's columns do not grow with the tokens.
constexpr int32_t tokens_per_block(const GroupSpec& spec) {
  switch (spec.kind) {
    case CacheKind::kFull:
    case CacheKind::kSink:
    case CacheKind::kSlidingWindow:
    case CacheKind::kChunkedLocal: return spec.block_size * spec.cp_world;
    case CacheKind::kCompressed: return spec.block_size * spec.ratio;
    default: return 0;
  }
}

// May a group's entries lie in the blocks of another, by that one's table? Pooled entries where a block holds the same
// tokens; a ring in column 0 of what is kept, and hit, at an exact token (RING-2).
constexpr bool can_share_table(const GroupSpec& owner, const GroupSpec& reader) {
  if (owner.table_of != kOwnTable || (reader.zeroed && !owner.zeroed)) return false;
  if (reader.kind == CacheKind::kRing) return owner.snapshot;
  const bool pools = owner.kind == CacheKind::kCompressed && owner.ratio <= reader.ratio;
  const bool tokens = pools || (owner.kind == CacheKind::kFull && owner.cp_world == 1);
  return reader.kind == CacheKind::kCompressed && tokens && tokens_per_block(owner) == tokens_per_block(reader);
}

// Groups with a table of their own. REQUIRES: they come first.
inline int32_t num_tables(const std::vector<GroupSpec>& groups) {
  const auto owns = [](const GroupSpec& g) { return g.table_of == kOwnTable; };
  const auto end = std::find_if_not(groups.begin(), groups.end(), owns);
  BZ_CHECK(std::none_of(end, groups.end(), owns));
  return static_cast<int32_t>(end - groups.begin());
}

constexpr int32_t sink_columns(const GroupSpec& spec) {
  return spec.sink_tokens == 0 ? 0 : ceil_div(spec.sink_tokens, spec.block_size);
}

// How a table's rows grow with their tokens, worked out once: what every append at the end of a block asks.
struct GrowthRule {
  int32_t tokens_per_block = 0;  // 0: columns do not grow with the tokens
  int32_t sinks = 0;             // columns
  int32_t open_tokens = 0;       // that fill no entry yet and need no room: ratio - 1
  int32_t first_sink = 0;        // index of the table's first among all tables' sinks
  bool zeroed = false;           // new blocks are (KV-4)

  constexpr GrowthRule(const GroupSpec& spec, int32_t first)
      : tokens_per_block(kv::tokens_per_block(spec)),
        sinks(sink_columns(spec)),
        open_tokens(spec.ratio - 1),
        first_sink(first),
        zeroed(spec.zeroed) {}
  // Tokens that a row with so many columns has room for. REQUIRES (both): tokens_per_block > 0, width >= sinks.
  constexpr int64_t tokens_in(int32_t width) const { return int64_t{width - sinks} * tokens_per_block + open_tokens; }
  // Adds the columns that `total` tokens need. How many have room then.
  constexpr int64_t widen(int32_t& width, int32_t total) const {
    const int64_t room = tokens_in(width), missing = total - room;
    if (missing <= 0) return room;
    const int64_t more = missing <= tokens_per_block ? 1 : ceil_div<int64_t>(missing, tokens_per_block);  // mostly one
    width += static_cast<int32_t>(more);
    return room + more * tokens_per_block;
  }
  bool operator==(const GrowthRule&) const = default;
};

// The first token that a query at `position` or later can see.
constexpr int32_t first_needed(const GroupSpec& spec, int32_t position) {
  const bool windowed = slot_form(spec.kind) == SlotForm::kWindowed;
  return first_in_window(windowed ? spec.window : 0, spec.kind == CacheKind::kChunkedLocal, position);
}

// The width a row's table must have.
constexpr int32_t width_for(const GroupSpec& spec, const RowProgress& row, int32_t num_spec) {
  if (row.scheduled == 0) return 0;
  switch (spec.kind) {
    case CacheKind::kRing: return 1;
    case CacheKind::kState: return mutated(Mutation::kOneStatePerRow) ? 1 : 1 + num_spec;
    case CacheKind::kCross: return ceil_div(row.encoder_tokens, spec.block_size);
    case CacheKind::kCompressed:
      BZ_CHECK_GE(spec.ratio, 1);
      return ceil_div(row.scheduled / spec.ratio, spec.block_size);
    default: return sink_columns(spec) + ceil_div(row.scheduled, tokens_per_block(spec));
  }
}

// The columns a row must own. Only processed tokens move `first` (KV-2).
constexpr Columns columns_for(const GroupSpec& spec, const RowProgress& row, int32_t num_spec) {
  const bool slides = row.scheduled > 0 && slot_form(spec.kind) == SlotForm::kWindowed;
  const int32_t first = slides ? first_needed(spec, row.processed) / tokens_per_block(spec) : 0;
  return {first, width_for(spec, row, num_spec)};
}

// Columns of the group's table. A window's rows stay narrow: cells are reused (PAD-2).
constexpr int32_t max_columns(const GroupSpec& spec, const RowLimits& limits) {
  const RowProgress longest{0, limits.max_seq_len, limits.max_encoder_tokens};
  const int32_t all = std::max(1, columns_for(spec, longest, limits.num_spec).width);
  if (slot_form(spec.kind) != SlotForm::kWindowed) return all;
  const int64_t live = int64_t{spec.window} - 1 + limits.max_in_flight;
  return static_cast<int32_t>(std::min<int64_t>(all, ceil_div<int64_t>(live, tokens_per_block(spec)) + 1));
}

}  // namespace bz::kv
