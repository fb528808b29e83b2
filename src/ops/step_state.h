// What lives on the device across steps and within one: RowState, the staging slot, the step view, the results.
// Plain structs shared by prepare, sample and the host's staging (PAD-4). All arrays are in device order.
//
// Extents: R = padded rows, T = padded tokens, L = padded logits rows of the step's graph key. A logits row is a token
// whose logits are wanted: of each batch row its last num_logits tokens, batch row after batch row, without gaps.
#pragma once

#include <cstdint>

#include "kv/slot.h"
#include "kv/types.h"
#include "ops/attention_class.h"

namespace bz::ops {

// Per table row, device-resident. Row 0 belongs to the null row and never changes. Only prepare and sample write it.
struct RowState {
  int32_t num_computed;  // tokens whose KV is in the cache
  int32_t last_token;    // the token sampled last: the input of the next decode step
  int32_t num_accepted;  // tokens accepted by the last verify step; 1 without speculation
  uint32_t num_sampled;  // output index of the next token: the random counter
};

// The tokens of every table row by position, device-resident beside RowState: what penalties count, and what drafts are
// looked up in. Complete up to the row's last token: prepare writes what the host stages and what a step computes,
// sample what it samples (PAD-4). Past it there may be drafts that were rejected.
struct TokenHistory {
  int32_t* tokens;  // [num_table_rows][stride]
  int32_t stride;   // most tokens of a row

  BZ_HD int32_t* row(int64_t table_row) const { return tokens + table_row * stride; }
  // Nothing past the longest row: that a row outgrew its reserve is for prepare to say.
  BZ_HD void set(int64_t table_row, int32_t position, int32_t token) const {
    if (position < stride) row(table_row)[position] = token;
  }
};

inline constexpr int32_t kMaxDraftTokens = 8;

// What may follow a row's last token, per table row, device-resident: written by the draft op after a step, read by the
// next step's prepare.
struct RowDraft {
  int32_t count;
  int32_t tokens[kMaxDraftTokens];
};

inline constexpr int32_t kMaxTopLogprobs = 20;  // OpenAI's limit

// How a row's logits change before it samples (adjust_logits, which says in what order). The defaults change nothing.
struct LogitAdjust {
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t prompt_len = 0;  // tokens of the history that are the prompt; what follows are outputs
  int32_t min_tokens = 0;  // no masked id before this many outputs
  // In the step's staged biases, from bias_start: num_masked ids that end the request, then num_bias biased ids.
  int32_t bias_start = 0;
  int32_t num_masked = 0;
  int32_t num_bias = 0;
};

// How one row samples. temperature == 0: greedy.
struct RowSampling {
  float temperature;
  float top_p;
  int32_t top_k;  // 0: off
  float min_p;
  uint32_t first_output;  // output index of the row's first sample: not 0 when a preempted request begins a row again
  uint64_t seed;
  LogitAdjust adjust = {};
  int32_t num_top_logprobs = -1;  // most likely tokens to report beside each logits row's own; -1: report nothing
};

// A token id and what is added to its logit.
struct LogitBias {
  int32_t token;
  float bias;
};

// ---- staged by the host, one slot of the ring per step (engine/step_inputs) ----

struct StagedHeader {
  uint64_t sequence;  // of the StepPlan; prepare expects its own count + 1 (PAD-10)
  int32_t num_valid_rows;
  int32_t num_valid_tokens;
  int32_t num_changes;
  int32_t num_copies;
};

struct StagedRow {
  int32_t row_index;    // table row; 0 for a padded row (PAD-3)
  int32_t query_len;    // tokens of this row in this step; 0 for a padded row
  int32_t num_logits;   // of its last tokens, whose logits are wanted
  int32_t sample;       // after how many of its last tokens to sample; above 1: all but the first of them are drafts
  int32_t max_seq_len;  // the plan's upper bound of num_computed + query_len: what blocks were reserved for
  // The row begins with tokens that no step of its own computes (a prefix hit): their ids, for the token history.
  int32_t history_start;  // in the slot's history
  int32_t history_len;    // positions [0, history_len)
  int32_t next_token;     // the prompt's token after the row's last one, if it does not sample
  RowSampling sampling;
};

// A staged token: an id, kTokenFromRowState for the row's last sampled token, or kTokenFromDraft for its next draft. A
// row ends where its drafts do: a step may compute fewer tokens than were staged.
inline constexpr int32_t kTokenFromRowState = -1;
inline constexpr int32_t kTokenFromDraft = -2;

// Addresses of the arrays inside one staging slot. Whole extent staged: live entries, then null ones to the end.
struct StagedSlot {
  const StagedHeader* header;
  const StagedRow* rows;           // [R]
  const int32_t* tokens;           // [T]
  const kv::TableChange* changes;  // [num_changes]
  const int32_t* history;          // as the rows' history_start and history_len say
  const LogitBias* biases;         // as the rows' bias_start, num_masked and num_bias say
  const kv::BlockCopy* copies;     // [num_copies]
};

// ---- written by prepare, read by every other op of the step (but for the claims in AttentionCounts) ----

struct GroupStep {
  kv::GroupView view;  // device-resident tables
  kv::SlotId* slots;   // [T] where each token's entry is written; kPadSlot for padding, and where it writes none
  // [R] first position that a query of the row may see (0 for full attention): tile loops start here (PAD-7)
  int32_t* first_visible;
  kv::StateId* states;  // [R][states_per_row] state after token i of a verify step; kNullState for padding (STATE-1)
  AttentionLists attention;
};

// How many logits rows of a step are real.
using NumValidLogits = StrongId<struct NumValidLogitsTag, int32_t>;

struct StepView {
  int32_t padded_rows;    // R
  int32_t padded_tokens;  // T
  int32_t padded_logits;  // L
  int32_t num_groups;
  int32_t states_per_row;   // 1 + k
  int32_t samples_per_row;  // 1 + k: results that each batch row has room for

  const kv::NumValidRows* num_valid_rows;      // [1]
  const kv::NumValidTokens* num_valid_tokens;  // [1]
  const NumValidLogits* num_valid_logits;      // [1]
  const int32_t* token_ids;                    // [T] 0 for padding
  const int32_t* positions;                    // [T] 0 for padding
  const int32_t* token_row;                    // [T] batch row of the token; -1 for padding
  const int32_t* row_index;                    // [R] table row; 0 for padding
  const int32_t* query_start;                  // [R + 1] monotone, repeats its last value over padding (PAD-3)
  const int32_t* seq_len;       // [R] tokens in the cache after this step's writes; 0 for padding (PAD-5)
  const int32_t* logits_start;  // [R + 1] first logits row of each batch row; monotone, as query_start
  const int32_t* logits_token;  // [L] token whose logits are wanted; -1 for padding: its logits row is zeros
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

inline constexpr int32_t kTokenNone = -1;      // the row did not sample
inline constexpr int32_t kTokenNan = -2;       // its logits hold a NaN: the engine fails this request alone (ENG-1)
inline constexpr int32_t kTokenRejected = -3;  // a draft stood here that was not accepted

// samples_per_row a batch row: the tokens sampled, then kTokenRejected for each draft that was not accepted, then
// kTokenNone.
struct RowResult {
  int32_t token;  // sampled token id, or kTokenNone, kTokenNan
  float logprob;  // its natural-log probability under the unmodified logits; 0 without a token
};

// Log probabilities of one logits row under the unmodified logits, natural logarithms. `token` follows the logits row's
// token: the sampled one, or the prompt's next one; kTokenNone: nothing was asked for, or a NaN is among the logits.
struct LogprobResult {
  int32_t token;
  float logprob;
  int32_t rank;     // of `token`: 1 + how many are more likely, ties by the lower id first
  int32_t num_top;  // the most likely tokens, falling, ties by the lower id first
  int32_t top_tokens[kMaxTopLogprobs];
  float top_logprobs[kMaxTopLogprobs];
};

}  // namespace bz::ops
