// What lives on the device across steps and within one: RowState, the staging slot, the step view, the results.
// Plain structs shared by prepare, sample and the host's staging (PAD-4). All arrays are in device order.
//
// Extents: R = padded rows, T = padded tokens, L = padded logits rows of the step's graph key.
#pragma once

#include <cstdint>

#include "kv/slot.h"
#include "kv/types.h"

namespace bz::ops {

// Per table row, device-resident. Row 0 belongs to the null row and never changes. Only prepare and sample write it.
struct RowState {
  int32_t num_computed;  // tokens whose KV is in the cache
  int32_t last_token;    // the token sampled last: the input of the next decode step
  int32_t num_accepted;  // tokens accepted by the last verify step; 1 without speculation
  uint32_t num_sampled;  // output index of the next token: the random counter
};

// How one row samples. temperature == 0: greedy.
struct RowSampling {
  float temperature;
  float top_p;
  int32_t top_k;  // 0: off
  float min_p;
  uint32_t first_output;  // output index of the row's first sample: not 0 when a preempted request begins a row again
  uint64_t seed;
};

// ---- staged by the host, one slot of the ring per step (engine/step_inputs) ----

struct StagedHeader {
  uint64_t sequence;  // of the StepPlan; prepare expects its own count + 1 (PAD-10)
  int32_t num_valid_rows;
  int32_t num_valid_tokens;
  int32_t num_changes;
  int32_t reserved;
};

struct StagedRow {
  int32_t row_index;    // table row; 0 for a padded row (PAD-3)
  int32_t query_len;    // tokens of this row in this step; 0 for a padded row
  int32_t sample;       // 1: sample a token after the row's last token
  int32_t max_seq_len;  // the plan's upper bound of num_computed + query_len: what blocks were reserved for
  RowSampling sampling;
};

// A staged token: an id, or kTokenFromRowState for the row's last sampled token.
inline constexpr int32_t kTokenFromRowState = -1;

// Addresses of the arrays inside one staging slot. Whole extent staged: live entries, then null ones to the end.
struct StagedSlot {
  const StagedHeader* header;
  const StagedRow* rows;           // [R]
  const int32_t* tokens;           // [T]
  const kv::TableChange* changes;  // [num_changes]
};

// ---- written by prepare, read by every other op of the step ----

struct GroupStep {
  kv::GroupView view;  // device-resident tables
  kv::SlotId* slots;   // [T] where each token's entry is written; kPadSlot for padding, and where it writes none
  // [R] first position that a query of the row may see (0 for full attention): tile loops start here (PAD-7)
  int32_t* first_visible;
  kv::StateId* states;  // [R][states_per_row] state after token i of a verify step; kNullState for padding (STATE-1)
};

struct StepView {
  int32_t padded_rows;    // R
  int32_t padded_tokens;  // T
  int32_t padded_logits;  // L
  int32_t num_groups;
  int32_t states_per_row;  // 1 + k

  const kv::NumValidRows* num_valid_rows;      // [1]
  const kv::NumValidTokens* num_valid_tokens;  // [1]
  const int32_t* token_ids;                    // [T] 0 for padding
  const int32_t* positions;                    // [T] 0 for padding
  const int32_t* token_row;                    // [T] batch row of the token; -1 for padding
  const int32_t* row_index;                    // [R] table row; 0 for padding
  const int32_t* query_start;                  // [R + 1] monotone, repeats its last value over padding (PAD-3)
  const int32_t* seq_len;       // [R] tokens in the cache after this step's writes; 0 for padding (PAD-5)
  const int32_t* logits_token;  // [L] token whose logits are wanted; -1: none, its logits row is zeros
  GroupStep groups[kv::kMaxGroups];
};

// ---- written by sample, read by the host, one slot of the ring per step ----

enum class StepError : int32_t {
  kNone = 0,
  kSequenceGap = 1,   // PAD-10: staged sequence was not the device's count + 1; every row was nulled
  kPastReserved = 2,  // a row would have grown past what the plan reserved; it was nulled
};

struct StepResultHeader {
  uint64_t sequence;
  StepError error;
  int32_t num_valid_rows;
};

inline constexpr int32_t kTokenNone = -1;  // the row did not sample
inline constexpr int32_t kTokenNan = -2;   // its logits hold a NaN: the engine fails this request alone (ENG-1)

struct RowResult {
  int32_t token;  // sampled token id, or kTokenNone, kTokenNan
  float logprob;  // its natural-log probability under the unmodified logits; 0 without a token
};

}  // namespace bz::ops
