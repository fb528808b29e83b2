// RequestState: a request (one choice of it) on its way through the engine, from add() to its last output.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"
#include "kv/types.h"
#include "ops/step_state.h"

namespace bz::engine {

struct FairClient;

struct RequestState {
  RequestId id;
  Request request;
  std::shared_ptr<Sink> sink;
  ops::RowSampling sampling{};  // the request's, but for what a step adds: first_output, biases, log probabilities
  // Choices of the same prompt, whose rows will begin as copies of this one's (KV-6).
  std::vector<std::unique_ptr<RequestState>> followers;
  std::vector<int32_t> tokens;      // prompt, then what was generated
  kv::RowId row = kv::kNullRow;     // null: waiting
  int32_t num_computed = 0;         // tokens whose KV is in the cache, by the steps planned so far; at most
  int32_t num_confirmed = 0;        // tokens whose KV is in the cache, by the results read so far
  int32_t num_rejected = 0;         // drafts that the cache still counts
  int32_t num_pending = 0;          // tokens sampled by steps whose results have not been read; at most
  uint32_t first_output = 0;        // outputs generated before the row began (after a preemption)
  int32_t history_len = 0;          // tokens the row began with, not yet staged for its token history
  int32_t num_prompt_logprobs = 0;  // delivered, or in `output`
  FairClient* client = nullptr;     // whom it is charged to
  bool resumed = false;             // preempted: it has had its turn
  int64_t order = 0;                // of arrival in the queue
  int64_t arrived_at = 0;           // admissions before it came
  Output output;                    // reused: what the next delivery says

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_outputs() const { return num_tokens() - static_cast<int32_t>(request.prompt.size()); }
  // Tokens whose KV is not planned yet, those included that only the device knows.
  int32_t num_uncomputed() const { return num_tokens() + num_pending - num_computed; }
  // Log probabilities of its prompt are still to come.
  bool scores_prompt() const {
    return request.prompt_logprobs >= 0 && num_prompt_logprobs + 1 < static_cast<int32_t>(request.prompt.size());
  }
  // All of the prompt but its last token is in the cache, or planned: where followers begin.
  bool at_fork_point() const {
    return num_outputs() + num_pending == 0 && num_computed + 1 == static_cast<int32_t>(request.prompt.size());
  }
  // Every output it may have is sampled or on its way.
  bool outputs_complete() const { return num_outputs() + num_pending >= request.max_tokens; }
};

using StatePtr = std::unique_ptr<RequestState>;

}  // namespace bz::engine
