// Scheduler: which requests run in the next step, with how many tokens. Owns the requests and the cache manager.
//
// A step takes every decoding request first (one token each), then prompt chunks up to the token budget, then admits
// who waits (WaitQueue says in which order); urgent ones first throughout. When blocks run out the least urgent request
// is preempted, of those the one admitted last: its row is released and it recomputes its tokens later (PAD-9b: with
// the same result). Nobody is preempted for somebody who waits.
//
// Of a request's choices one computes the prompt up to its last token; the others' rows then begin as copies of its row
// (KV-6). Choices that have no room at that moment wait like any request, and find the prompt in the prefix cache.
// With speculation a decoding request also gets room for drafts, which only the device knows; until the results are
// read the host counts all of them as accepted. Steps may be planned before the results of earlier ones are read: a
// decode step's input is on the device, and a surplus token after an end token is dropped. One thread; deterministic;
// knows nothing of devices.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/request_state.h"
#include "engine/step_plan.h"
#include "engine/wait_queue.h"
#include "kv/cache_manager.h"

namespace bz::engine {

struct SchedulerConfig {
  int32_t max_num_seqs = 0;            // requests in one step
  int32_t max_num_batched_tokens = 0;  // tokens in one step
  int32_t max_model_len = 0;           // tokens of one request, prompt and output
  int32_t vocab_size = INT32_MAX;
  std::vector<int32_t> end_token_ids;  // of the model
};

class Scheduler {
 public:
  Scheduler(const SchedulerConfig& config, const kv::CacheConfig& cache);

  // Could this request ever run? Checks it against the model's and the cache's size.
  Status check(const Request& request) const;
  // The longest request that check() admits, prompt and output together: the cache may hold less than the context.
  int32_t max_request_tokens() const;
  // A request of several choices takes as many ids, from `id` on. REQUIRES: check() said ok.
  void add(RequestId id, Request request, std::shared_ptr<Sink> sink);
  // Ends a request (client gone). Its blocks are released by the next plan (ENG-2). False: no such request.
  bool cancel(RequestId id);
  // Ends every request (shutdown, fail-stop).
  void finish_all(FinishReason reason, const std::string& error = {});

  bool has_work() const { return waiting_.size() > 0 || !running_.empty(); }
  // Chooses the rows and tokens of the next step; none: there is nothing to compute. take_cache_plan() completes it.
  void schedule(StepPlan& plan);
  // The cache's half of the next plan. False: it holds only part of the table changes that wait: run it as a change
  // plan (no rows) and ask again (PAD-10). Without rows scheduled: the cache's half of a dummy step.
  [[nodiscard]] bool take_cache_plan(kv::CachePlan& plan) { return cache_.take_plan(plan); }
  bool has_pending_changes() const { return !cache_.pending_changes().empty(); }
  // Every plan up to `sequence` has finished on the device (KV-2).
  void processed(uint64_t sequence) { cache_.processed(sequence); }
  // Takes the results of a plan that schedule() made: appends tokens, ends requests, delivers outputs. logprobs: of the
  // logits rows, which logits_ends deals out to the rows; both may be empty if no row asked.
  void process(const StepPlan& plan, std::span<const ops::RowResult> results, std::span<const int32_t> logits_ends = {},
               std::span<const ops::LogprobResult> logprobs = {});

  const kv::CacheManager& cache() const { return cache_; }
  int64_t num_waiting() const { return static_cast<int64_t>(by_id_.size() - running_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }

  struct Counters {
    // Speculation: rows that verified drafts, drafts verified, drafts accepted, and these by their place in the draft.
    int64_t num_drafts = 0, draft_tokens = 0, accepted_tokens = 0;
    std::array<int64_t, ops::kMaxDraftTokens> accepted_by_place{};
    int64_t finished = 0, failed = 0, preempted = 0, forked = 0, prompt_tokens = 0, generation_tokens = 0;
    // Prefix cache: tokens looked for at admission, tokens found, and why no more were, by kv::MissReason.
    int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
    std::array<int64_t, kv::kNumMissReasons> prefix_misses{};
  };
  const Counters& counters() const { return counters_; }

 private:
  StatePtr new_state(RequestId id, int32_t choice, Request request, std::shared_ptr<Sink> sink);
  void fork_followers();
  void start_running(StatePtr s);
  void plan_decodes(StepPlan& plan);
  void plan_chunks(StepPlan& plan);
  void admit_waiting(StepPlan& plan);
  int32_t token_budget(const StepPlan& plan) const;
  bool row_left(const StepPlan& plan) const;
  bool history_fits(const StepPlan& plan, int32_t num_tokens) const;
  int32_t next_chunk(const StepPlan& plan, const RequestState& s) const;
  void admit_row(RequestState& s);
  int32_t num_drafts(const StepPlan& plan, const RequestState& s, int32_t rows_behind) const;
  void add_row(StepPlan& plan, RequestState& s, int32_t num_tokens, int32_t num_drafts = 0);
  ops::RowSampling row_sampling(StepPlan& plan, const RequestState& s) const;
  void settle_drafts(RequestState& s);
  void confirm(RequestState& s, const PlanRow& row, int32_t num_new);
  void count_drafts(std::span<const ops::RowResult> samples, int32_t num_new);
  void preempt_last();
  void give_row(RequestState& s, kv::RowId row);
  void release_row(RequestState& s);
  RequestState* state_of(const PlanRow& row);
  void fetch_rows(const StepPlan& plan, std::span<const ops::RowResult> results) const;
  void accept_token(RequestState& s, const ops::RowResult& result, const ops::LogprobResult* logprobs);
  void accept_prompt_logprobs(RequestState& s, const PlanRow& row, std::span<const ops::LogprobResult> logprobs);
  void finish(RequestState& s, FinishReason reason, std::string error = {});
  void deliver(RequestState& s);
  void close(RequestState& s);
  void drop_finished();

  SchedulerConfig config_;
  kv::CacheManager cache_;
  WaitQueue waiting_;
  std::vector<StatePtr> running_;                       // by priority, then in order of admission
  std::unordered_map<RequestId, RequestState*> by_id_;  // waiting, running or followers of such
  std::vector<RequestState*> by_row_;                   // of each table row; null: nobody's
  kv::PrefixHit hit_;                                   // reused
  Output output_;                                       // reused: what deliver() says next
  bool running_ended_ = false;                          // requests that have ended are still in running_
  std::vector<RequestState*> waiting_ended_;            // likewise in waiting_, or followers
  Counters counters_;
};

}  // namespace bz::engine
