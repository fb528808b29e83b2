// RequestState: a request (one choice of it) on its way through the engine, from add() to its last output.
//
// While the device runs a step of milliseconds the host's caches may lose all of it; the host's time is then the number
// of cache lines that each row touches (bench/b10_cold.cc). So what every step needs comes first and is small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/touch.h"
#include "engine/request.h"
#include "kv/types.h"
#include "ops/step_state.h"

namespace bz::engine {

struct FairClient;

struct RequestState {
  RequestId id;
  std::shared_ptr<Sink> sink;
  FairClient* client = nullptr;      // whom it is charged to
  std::vector<int32_t> tokens;       // prompt, then what was generated
  std::span<const int32_t> end_ids;  // tokens that end it: the model's list, where a request has none of its own
  kv::RowId row = kv::kNullRow;      // null: waiting
  int32_t num_prompt = 0;            // of `tokens`
  int32_t max_tokens = 0;
  int32_t num_computed = 0;         // tokens whose KV is in the cache, by the steps planned so far; at most
  int32_t num_confirmed = 0;        // tokens whose KV is in the cache, by the results read so far
  int32_t num_rejected = 0;         // drafts that the cache still counts
  int32_t num_pending = 0;          // tokens sampled by steps whose results have not been read; at most
  int32_t history_len = 0;          // tokens the row began with, not yet staged for its token history
  int32_t num_cached_tokens = 0;    // Output's
  int32_t num_prompt_logprobs = 0;  // delivered, or in `prompt_scores`
  int16_t logprobs = -1;            // Request's, as are the next
  int16_t prompt_logprobs = -1;
  int16_t priority = 0;
  int16_t choice = 0;  // Output's
  std::optional<FinishReason> finished;

  // The request's, but for what a step adds: biases, log probabilities. first_output: outputs generated before the row
  // began (after a preemption).
  ops::RowSampling sampling{};

  // ---- from here on: what no decode step needs ----

  // Choices of the same prompt, whose rows will begin as copies of this one's (KV-6). Gone once it has outputs.
  std::vector<std::unique_ptr<RequestState>> followers;
  RequestState* leader = nullptr;    // whose follower it is
  std::vector<int32_t> own_end_ids;  // what end_ids names, unless it is the model's list
  std::vector<LogitBias> logit_bias;
  std::vector<TokenLogprobs> prompt_scores;  // not delivered yet
  bool resumed = false;                      // preempted: it has had its turn
  int64_t order = 0;                         // of arrival in the queue
  int64_t arrived_at = 0;                    // admissions before it came

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_outputs() const { return num_tokens() - num_prompt; }
  // Tokens whose KV is not planned yet, those included that only the device knows.
  int32_t num_uncomputed() const { return num_tokens() + num_pending - num_computed; }
  // Log probabilities of its prompt are still to come.
  bool scores_prompt() const { return prompt_logprobs >= 0 && num_prompt_logprobs + 1 < num_prompt; }
  // The first output is not on its way yet: until then others may wait for its prompt.
  bool in_prompt() const { return num_outputs() + num_pending == 0; }
  // All of the prompt but its last token is in the cache, or planned: where followers begin.
  bool at_fork_point() const { return in_prompt() && num_computed + 1 == num_prompt; }
  // Every output it may have is sampled or on its way.
  bool outputs_complete() const { return num_outputs() + num_pending >= max_tokens; }
  // Asks for what every step needs (base/touch.h).
  void fetch() const { touch_bytes<offsetof(RequestState, followers)>(this); }
};

using StatePtr = std::unique_ptr<RequestState>;

}  // namespace bz::engine
