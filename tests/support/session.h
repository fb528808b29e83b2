// Session: requests through an engine, as a front end would send them, and what came of each: its tokens and, to the
// bit, the logits behind every one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/request.h"

namespace bz::test {

// One sampled token of a request.
struct Sampled {
  int32_t token = -1;
  uint64_t logits_hash = 0;    // of its row of logits, all bits
  uint64_t logprobs_hash = 0;  // of its log probabilities, if asked for
  bool operator==(const Sampled&) const = default;
};
using Trace = std::vector<std::vector<Sampled>>;  // [request, in order of submission][output index]

// "" if equal, else where they differ first.
std::string first_difference(const Trace& expected, const Trace& actual);

class Session {
 public:
  // The model outlives the session. One session at a time.
  explicit Session(engine::LoadedModel& model);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns the request's index in the trace; its choices have the indices from there on. REQUIRES: the engine accepts
  // it.
  size_t submit(engine::Request request);
  void cancel(size_t index);
  bool step() { return model_.core().step(); }
  void finish_all_work();  // steps until nothing is left to do
  bool finished(size_t index) const { return sinks_[index]->finished.has_value(); }
  std::optional<engine::FinishReason> reason(size_t index) const { return sinks_[index]->finished; }
  std::vector<int32_t> tokens(size_t index) const { return sinks_[index]->tokens; }
  const std::vector<engine::TokenLogprobs>& logprobs(size_t index) const { return sinks_[index]->logprobs; }
  const std::vector<engine::TokenLogprobs>& prompt_logprobs(size_t index) const {
    return sinks_[index]->prompt_logprobs;
  }
  // Of the output that was sampled last, [V].
  const std::vector<float>& last_logits() const { return logits_; }

  const Trace& trace() const { return trace_; }
  engine::EngineCore& core() { return model_.core(); }

 private:
  struct Sink final : engine::Sink {
    void on_output(const engine::Output& output) override;
    std::vector<int32_t> tokens;
    std::vector<engine::TokenLogprobs> logprobs, prompt_logprobs;
    std::optional<engine::FinishReason> finished;
  };
  void observe(const engine::StepPlan& plan, const engine::StepResult& result);

  engine::LoadedModel& model_;
  std::vector<std::shared_ptr<Sink>> sinks_;
  uint64_t first_id_;
  Trace trace_;
  std::vector<float> logits_;  // one row
};

// How a set of requests is run. The answers must not depend on it (PAD-9b).
struct RunStyle {
  size_t at_once = 1u << 20;   // requests in the engine at a time
  int32_t min_rows = 0;        // pad every step at least this far
  bool dummy_between = false;  // a dummy step, of changing size, between every two steps
};
Trace run_requests(engine::LoadedModel& model, const std::vector<engine::Request>& requests, const RunStyle& style);

// Gives each request some of the penalties, biases, min_tokens and log probabilities.
void ask_for_everything(std::vector<engine::Request>& requests, int32_t vocab_size);

// Requests of mixed lengths: prompts of 1 to max_prompt random ids, every third one sampled at random with a seed.
std::vector<engine::Request> mixed_requests(size_t count, int32_t max_prompt, int32_t max_tokens, int32_t vocab_size,
                                            uint64_t seed);

}  // namespace bz::test
