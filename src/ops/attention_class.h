// The step's tokens by how attention takes them. prepare lists each class once a step, so that a kernel walks the
// tokens that it has: padding and nulled rows are on nobody's way.
#pragma once

#include <cstdint>

#include "kv/slot.h"

namespace bz::ops {

// What a token sees of one group's cache.
struct Visible {
  int32_t table_row;   // the null row: nothing, it is dead
  int32_t begin, end;  // positions; end <= begin: none
  int32_t fresh;       // entries from here on are written by this step
};
struct AttentionToken {
  int32_t token;
  Visible sees;
};
// first: first_visible of its batch row, where loops over its positions begin. num_computed: the row's tokens before
// this step.
BZ_HD constexpr AttentionToken attention_token(const kv::GroupView& g, int32_t first, int32_t token, int32_t table_row,
                                               int32_t position, int32_t num_computed) {
  const int32_t in_window = kv::first_visible(g, position);
  return {token, {table_row, first > in_window ? first : in_window, position + 1, num_computed}};
}

enum class AttentionClass : int32_t {
  kPrompt,  // of a row with many tokens in this step: they share what they read (attention_prefill.cuh has such rows)
  kLong,    // sees many positions: several warps share them
  kShort,
  kDead,  // padding, or of a nulled row: zeros (PAD-5)
};
inline constexpr int32_t kNumAttentionClasses = 4;
inline constexpr int32_t kPromptQueries = 32;    // of a row with prompt tokens, at least
inline constexpr int32_t kShortPositions = 384;  // that a short token sees, at most

// query_len: the row's tokens in this step.
BZ_HD constexpr AttentionClass attention_class(const AttentionToken& t, int32_t query_len) {
  if (t.sees.table_row == kv::kNullRow.value()) return AttentionClass::kDead;
  if (query_len >= kPromptQueries) return AttentionClass::kPrompt;
  return t.sees.end - t.sees.begin > kShortPositions ? AttentionClass::kLong : AttentionClass::kShort;
}

struct AttentionCounts {
  int32_t of_class[kNumAttentionClasses];
  // How many pieces of work were asked for, by ctas and by single warps. Alone of the step view these are written by
  // the kernels that read them, which leave zeros; so no kernel may touch them before the one before it has finished.
  uint32_t shared_claims, lone_claims;
};

// One group's lists, each in the order of the batch.
struct AttentionLists {
  AttentionToken* tokens;  // [kNumAttentionClasses][T]
  AttentionCounts* counts;
};

}  // namespace bz::ops
