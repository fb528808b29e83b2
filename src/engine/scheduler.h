// Scheduler: which requests run in the next step, with how many tokens. Owns the requests and the cache manager.
//
// A step takes every decoding request first (one token each), then prompt chunks up to the token budget, first come
// first served. When blocks run out the request admitted last is preempted: its row is released and it recomputes its
// tokens later (PAD-9b: with the same result). Steps may be planned before the results of earlier ones are read: a
// decode step's input is on the device, and a surplus token after an end token is dropped. One thread; deterministic;
// knows nothing of devices.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "engine/step_plan.h"
#include "kv/cache_manager.h"

namespace bz::engine {

struct SchedulerConfig {
  int32_t max_num_seqs = 0;            // requests in one step
  int32_t max_num_batched_tokens = 0;  // tokens in one step
  int32_t max_model_len = 0;           // tokens of one request, prompt and output
  int32_t vocab_size = INT32_MAX;
  std::vector<int32_t> end_token_ids;  // of the model
};

// A request on its way through the engine.
struct RequestState {
  RequestId id;
  Request request;
  std::shared_ptr<Sink> sink;
  std::vector<int32_t> tokens;      // prompt, then what was generated
  kv::RowId row = kv::kNullRow;     // null: waiting
  int32_t num_computed = 0;         // tokens whose KV is in the cache, by the steps planned so far
  int32_t num_pending = 0;          // tokens sampled by steps whose results have not been read
  uint32_t first_output = 0;        // outputs generated before the row began (after a preemption)
  int32_t history_len = 0;          // tokens the row began with, not yet staged for its token history
  int32_t num_prompt_logprobs = 0;  // delivered, or in `output`
  Output output;                    // reused: what the next delivery says

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_outputs() const { return num_tokens() - static_cast<int32_t>(request.prompt.size()); }
  // Tokens whose KV is not planned yet, those included that only the device knows.
  int32_t num_uncomputed() const { return num_tokens() + num_pending - num_computed; }
  // Log probabilities of its prompt are still to come.
  bool scores_prompt() const {
    return request.prompt_logprobs >= 0 && num_prompt_logprobs + 1 < static_cast<int32_t>(request.prompt.size());
  }
  // Every output it may have is sampled or on its way.
  bool outputs_complete() const { return num_outputs() + num_pending >= request.max_tokens; }
};

class Scheduler {
 public:
  Scheduler(const SchedulerConfig& config, const kv::CacheConfig& cache);

  // Could this request ever run? Checks it against the model's and the cache's size.
  Status check(const Request& request) const;
  // REQUIRES: check() said ok.
  void add(RequestId id, Request request, std::shared_ptr<Sink> sink);
  // Ends a request (client gone). Its blocks are released by the next plan (ENG-2). False: no such request.
  bool cancel(RequestId id);
  // Ends every request (shutdown, fail-stop).
  void finish_all(FinishReason reason, const std::string& error = {});

  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  // Chooses the rows and tokens of the next step; none: there is nothing to compute. take_cache_plan() completes it.
  void schedule(StepPlan& plan);
  // The cache's half of the next plan. False: it holds only part of the table changes that wait: run it as a change
  // plan (no rows) and ask again (PAD-10). Without rows scheduled: the cache's half of a dummy step.
  [[nodiscard]] bool take_cache_plan(kv::CachePlan& plan) { return cache_.take_plan(plan); }
  bool has_pending_changes() const { return !cache_.pending_changes().empty(); }
  // Every plan up to `sequence` has finished on the device (KV-2).
  void processed(uint64_t sequence) { cache_.processed(sequence); }
  // Takes the results of a plan that schedule() made: appends tokens, ends requests, delivers outputs. logprobs: of the
  // logits rows; may be empty if no row asked.
  void process(const StepPlan& plan, std::span<const ops::RowResult> results,
               std::span<const ops::LogprobResult> logprobs = {});

  const kv::CacheManager& cache() const { return cache_; }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }

  struct Counters {
    int64_t finished = 0, failed = 0, preempted = 0, prompt_tokens = 0, generation_tokens = 0;
    // Prefix cache: tokens looked for at admission, tokens found, and why no more were, by kv::MissReason.
    int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
    std::array<int64_t, kv::kNumMissReasons> prefix_misses{};
  };
  const Counters& counters() const { return counters_; }

 private:
  using StatePtr = std::unique_ptr<RequestState>;

  void plan_decodes(StepPlan& plan);
  void plan_chunks(StepPlan& plan);
  void admit_waiting(StepPlan& plan);
  int32_t token_budget(const StepPlan& plan) const;
  bool row_left(const StepPlan& plan) const;
  void admit_row(RequestState& s);
  void add_row(StepPlan& plan, RequestState& s, int32_t num_tokens);
  ops::RowSampling row_sampling(StepPlan& plan, const RequestState& s) const;
  void preempt_last();
  void release_row(RequestState& s);
  void accept_token(RequestState& s, const ops::RowResult& result, const ops::LogprobResult* logprobs);
  void accept_prompt_logprobs(RequestState& s, const PlanRow& row, std::span<const ops::LogprobResult> logprobs);
  void finish(RequestState& s, FinishReason reason, std::string error = {});
  void deliver(RequestState& s);
  void drop_finished();

  SchedulerConfig config_;
  kv::CacheManager cache_;
  std::deque<StatePtr> waiting_;
  std::vector<StatePtr> running_;                       // in order of admission
  std::unordered_map<RequestId, RequestState*> by_id_;  // waiting or running
  kv::PrefixHit hit_;                                   // reused
  Counters counters_;
};

}  // namespace bz::engine
