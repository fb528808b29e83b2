#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace bz::engine {

Scheduler::Scheduler(const SchedulerConfig& config, const kv::CacheConfig& cache) : config_(config), cache_(cache) {
  BZ_CHECK_GE(config.max_num_seqs, 1);
  BZ_CHECK_GE(config.max_num_batched_tokens, config.max_num_seqs);
  BZ_CHECK_GT(cache.max_rows, config.max_num_seqs);  // a row each, and the null row
  running_.reserve(static_cast<size_t>(config.max_num_seqs));
  by_row_.resize(static_cast<size_t>(cache.max_rows));
  const auto per_step = size_t{1} + static_cast<size_t>(cache.num_spec);  // tokens of a row
  output_.tokens.reserve(per_step);
  output_.token_logprobs.reserve(per_step);
  output_.logprobs.reserve(1);
}

void Scheduler::schedule(StepPlan& plan) {
  plan.clear();
  fork_followers();
  plan_decodes(plan);
  plan_chunks(plan);
  admit_waiting(plan);
}

int32_t Scheduler::token_budget(const StepPlan& plan) const {
  return config_.max_num_batched_tokens - static_cast<int32_t>(plan.tokens.size());
}

bool Scheduler::row_left(const StepPlan& plan) const {
  return token_budget(plan) > 0 && static_cast<int32_t>(plan.rows.size()) < config_.max_num_seqs;
}

// What the token history of one step holds is bounded (ENG-3); alone, every row fits.
bool Scheduler::history_fits(const StepPlan& plan, int32_t num_tokens) const {
  return static_cast<int32_t>(plan.history.size()) + num_tokens <= config_.max_model_len;
}

// Rows whose prompt is there but for its last token, copied for those who wait for that.
void Scheduler::fork_followers() {
  for (size_t i = 0; i < running_.size(); ++i) {  // grows
    RequestState& leader = *running_[i];
    if (!leader.at_fork_point() || leader.followers.empty()) continue;
    for (StatePtr& s : std::exchange(leader.followers, {})) {
      s->leader = nullptr;
      if (static_cast<int32_t>(running_.size()) < config_.max_num_seqs && cache_.can_fork(leader.row)) {
        give_row(*s, cache_.fork(leader.row));
        s->num_computed = s->num_confirmed = s->history_len = leader.num_computed;
        s->num_cached_tokens = leader.num_cached_tokens;
        ++counters_.forked;
        start_running(std::move(s));
      } else {
        waiting_.add(std::move(s));
      }
    }
  }
}

void Scheduler::start_running(StatePtr s) {
  auto at = running_.end();  // mostly there
  while (at != running_.begin() && s->priority < at[-1]->priority) --at;
  running_.insert(at, std::move(s));
}

// Requests with exactly one token to compute. A victim of preemption stands behind the row it makes room for, so it is
// never in the plan yet.
void Scheduler::plan_decodes(StepPlan& plan) {
  for (size_t i = 0; i < running_.size() && row_left(plan); ++i) {
    if (running_[i]->num_uncomputed() != 1 || running_[i]->outputs_complete()) continue;
    if (!history_fits(plan, running_[i]->history_len)) continue;  // a later step's
    settle_drafts(*running_[i]);
    const kv::RowId row = running_[i]->row;
    while (i < running_.size() && !cache_.can_append(row, 1)) preempt_last();
    if (i == running_.size()) return;  // it was the last one itself
    add_row(plan, *running_[i], 1, num_drafts(plan, *running_[i], static_cast<int32_t>(running_.size() - i) - 1));
  }
}

// Tokens of a row's next chunk. A prompt that others wait for stops before its last token.
int32_t Scheduler::next_chunk(const StepPlan& plan, const RequestState& s) const {
  const int32_t left = s.num_uncomputed() - (s.followers.empty() ? 0 : 1);
  return std::min(left, token_budget(plan));
}

namespace {

// The last token is on the device: this row sampled it itself, the host need not have seen it.
bool continues_on_device(const RequestState& s) {
  return s.num_outputs() + s.num_pending > static_cast<int32_t>(s.sampling.first_output);
}

// What changes a row's logits by its outputs, or reports on them, goes token by token.
bool allows_drafts(const RequestState& s) {
  const ops::LogitAdjust& a = s.sampling.adjust;
  return s.logprobs < 0 && a.min_tokens == 0 && a.num_bias == 0 && a.repetition_penalty == 1.0f &&
         a.presence_penalty == 0.0f && a.frequency_penalty == 0.0f;
}

}  // namespace

// How many drafts the row may verify, if the device has them. Rows behind it get their token first.
int32_t Scheduler::num_drafts(const StepPlan& plan, const RequestState& s, int32_t rows_behind) const {
  if (cache_.config().num_spec == 0 || !continues_on_device(s) || !allows_drafts(s)) return 0;
  const int32_t left = s.max_tokens - s.num_outputs() - s.num_pending - 1;
  const int32_t n = std::min({cache_.config().num_spec, left, token_budget(plan) - 1 - rows_behind});
  return n > 0 && cache_.can_append(s.row, 1 + n) ? n : 0;
}

// Drafts that were rejected leave the cache's count before it grows again.
void Scheduler::settle_drafts(RequestState& s) {
  if (s.num_rejected > 0) cache_.rollback(s.row, std::exchange(s.num_rejected, 0));
}

void Scheduler::plan_chunks(StepPlan& plan) {
  for (const StatePtr& s : running_) {
    if (!row_left(plan)) return;
    if (s->num_uncomputed() <= 1) continue;
    const int32_t chunk = next_chunk(plan, *s);
    // Without room it waits: those that decode end, or are preempted for each other.
    if (cache_.can_append(s->row, chunk)) add_row(plan, *s, chunk);
  }
}

void Scheduler::admit_waiting(StepPlan& plan) {
  while (waiting_.size() > 0 && row_left(plan) && static_cast<int32_t>(running_.size()) < config_.max_num_seqs &&
         cache_.can_admit()) {
    RequestState& s = waiting_.next();
    if (s.num_pending > 0) return;  // preempted with a result on its way: its tokens are not known yet
    // A prompt that is scored is computed from its first token: the cache keeps no logits.
    cache_.find_prefix({std::span(s.tokens).first(s.scores_prompt() ? 1 : s.tokens.size())}, hit_);
    if (!history_fits(plan, hit_.num_tokens)) return;
    // Room for all its tokens and the next, so that an admission is not undone at once.
    if (!cache_.can_admit(hit_, s.num_tokens() + 1 - hit_.num_tokens)) return;
    admit_row(s);
    start_running(waiting_.admit(s));
    const int32_t chunk = next_chunk(plan, s);
    if (chunk > 0) add_row(plan, s, chunk);  // else: all of it but the token to fork at was in the prefix cache
  }
}

// The row begins with the prefix that hit_ found.
void Scheduler::admit_row(RequestState& s) {
  give_row(s, cache_.admit(hit_));
  s.num_computed = s.num_confirmed = s.history_len = hit_.num_tokens;
  s.sampling.first_output = static_cast<uint32_t>(s.num_outputs());
  if (s.num_outputs() == 0) s.num_cached_tokens = hit_.num_tokens;
  if (!s.resumed) WaitQueue::charge(s, s.num_tokens() - hit_.num_tokens);
  if (!cache_.config().prefix_cache) return;
  counters_.prefix_query_tokens += s.num_tokens();
  counters_.prefix_hit_tokens += hit_.num_tokens;
  for (int32_t g = 0; g < cache_.tables().num_tables(); ++g) {
    ++counters_.prefix_misses[static_cast<size_t>(hit_.groups[static_cast<size_t>(g)].reason)];
  }
}

// What the row's sampler needs; its biases go into the plan.
ops::RowSampling Scheduler::row_sampling(StepPlan& plan, const RequestState& s) const {
  ops::RowSampling r = s.sampling;
  ops::LogitAdjust& a = r.adjust;
  a.bias_start = static_cast<int32_t>(plan.biases.size());
  if (s.num_outputs() < a.min_tokens) {
    for (const int32_t id : s.end_ids) plan.biases.push_back({id, 0.0f});
  }
  a.num_masked = static_cast<int32_t>(plan.biases.size()) - a.bias_start;
  if (a.num_bias > 0) {
    for (const LogitBias& b : s.logit_bias) plan.biases.push_back({b.token, b.bias});
  }
  r.num_top_logprobs = std::max<int32_t>(s.logprobs, s.scores_prompt() ? s.prompt_logprobs : -1);
  return r;
}

void Scheduler::add_row(StepPlan& plan, RequestState& s, int32_t num_tokens, int32_t num_drafts) {
  cache_.append(s.row, num_tokens + num_drafts);
  const bool last = num_tokens == s.num_uncomputed();
  PlanRow& row = plan.rows.emplace_back();
  row.request = s.id;
  row.row = s.row;
  row.query_len = num_tokens + num_drafts;
  row.num_samples = last ? 1 + num_drafts : 0;
  row.num_logits = s.scores_prompt() ? num_tokens : row.num_samples;
  row.max_seq_len = s.num_computed + row.query_len;
  row.history_len = std::exchange(s.history_len, 0);
  if (row.history_len > 0) {
    plan.history.insert(plan.history.end(), s.tokens.begin(), s.tokens.begin() + row.history_len);
  }
  row.sampling = row_sampling(plan, s);
  if (num_tokens == 1 && continues_on_device(s)) {
    plan.tokens.push_back(ops::kTokenFromRowState);
    plan.tokens.insert(plan.tokens.end(), static_cast<size_t>(num_drafts), ops::kTokenFromDraft);
  } else {
    const auto begin = s.tokens.begin() + s.num_computed;
    plan.tokens.insert(plan.tokens.end(), begin, begin + num_tokens);
    if (!last) row.next_token = *(begin + num_tokens);
  }
  s.num_computed += row.query_len;
  s.num_pending += row.num_samples;
}

void Scheduler::preempt_last() {
  BZ_CHECK(!running_.empty());
  release_row(*running_.back());
  waiting_.put_back(std::move(running_.back()));
  running_.pop_back();
  ++counters_.preempted;
}

}  // namespace bz::engine
