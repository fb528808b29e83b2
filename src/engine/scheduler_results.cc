// What the results of a step do to its requests.
#include <algorithm>

#include "base/mutation.h"
#include "base/touch.h"
#include "engine/scheduler.h"

namespace bz::engine {

namespace {

TokenLogprobs to_token_logprobs(const ops::LogprobResult& r, int32_t num_top) {
  TokenLogprobs t{r.token, r.logprob, r.rank, std::min(r.num_top, num_top), {}, {}};
  std::copy_n(r.top_tokens, t.num_top, t.top_tokens.begin());
  std::copy_n(r.top_logprobs, t.num_top, t.top_logprobs.begin());
  return t;
}

// Results end with what was not sampled or not accepted; a NaN is an answer.
int32_t num_sampled(std::span<const ops::RowResult> samples) {
  const auto none = [](const ops::RowResult& r) {
    return r.token == ops::kTokenNone || r.token == ops::kTokenRejected;
  };
  return static_cast<int32_t>(std::find_if(samples.begin(), samples.end(), none) - samples.begin());
}

// Those of the logits rows that batch row i has.
std::span<const ops::LogprobResult> logprobs_of(size_t i, std::span<const int32_t> logits_ends,
                                                std::span<const ops::LogprobResult> logprobs) {
  if (logprobs.empty()) return {};
  const auto begin = static_cast<size_t>(i == 0 ? 0 : logits_ends[i - 1]);
  return logprobs.subspan(begin, static_cast<size_t>(logits_ends[i]) - begin);
}

}  // namespace

// What the row has in the cache now: the drafts that were not accepted do not count.
void Scheduler::confirm(RequestState& s, const PlanRow& row, int32_t num_new) {
  const int32_t rejected = row.num_samples > 0 ? row.num_samples - num_new : 0;
  s.num_computed -= rejected;
  s.num_rejected += rejected;
  s.num_confirmed += row.query_len - rejected;
  cache_.set_processed(s.row, s.num_confirmed);
  const size_t known = std::min(s.tokens.size(), static_cast<size_t>(s.num_confirmed));
  cache_.publish(s.row, {std::span(s.tokens).first(known)}, row.num_samples <= 1);
}

void Scheduler::count_drafts(std::span<const ops::RowResult> samples, int32_t num_new) {
  int32_t drafted = num_new - 1;
  for (const ops::RowResult& r : samples) drafted += r.token == ops::kTokenRejected ? 1 : 0;
  if (drafted == 0) return;  // the device had none
  ++counters_.num_drafts;
  counters_.draft_tokens += drafted;
  counters_.accepted_tokens += num_new - 1;
  for (int32_t i = 0; i + 1 < num_new; ++i) ++counters_.accepted_by_place[static_cast<size_t>(i)];
}

// Whose row it was; null: it ended meanwhile.
RequestState* Scheduler::state_of(const PlanRow& row) {
  RequestState* s = by_row_[static_cast<size_t>(row.row.value())];
  if (s != nullptr && s->id == row.request) return s;
  const auto it = by_id_.find(row.request);  // preempted since, or ended
  return it == by_id_.end() ? nullptr : it->second;
}

// While the device ran the step, all that its results touch may have left the caches: asked for level by level, each
// level's misses overlap.
void Scheduler::fetch_rows(const StepPlan& plan, std::span<const ops::RowResult> results) const {
  touch_all(std::span(plan.rows));
  touch_all(results);
  kv::RowId last = kv::kNullRow;
  for (const PlanRow& row : plan.rows) last = std::max(last, row.row);
  touch_all(std::span(by_row_).first(static_cast<size_t>(last.value()) + 1));
  cache_.fetch_rows(last);
  const auto each_state = [&](auto&& fetch) {
    for (const PlanRow& row : plan.rows) {
      if (const RequestState* s = by_row_[static_cast<size_t>(row.row.value())]) fetch(*s);
    }
  };
  each_state([](const RequestState& s) { s.fetch(); });
  each_state([](const RequestState& s) {
    touch(&s.tokens.back());
    touch(s.sink.get());
  });
}

namespace {

// Of the row's tokens in this step. max_seq_len may be too much for a row behind its prompt, and has none either way.
int32_t prompt_tokens_of(const PlanRow& row, const RequestState& s) {
  const int32_t begin = row.max_seq_len - row.query_len;
  return std::max(0, std::min(s.num_prompt, row.max_seq_len) - begin);
}

}  // namespace

void Scheduler::process(const StepPlan& plan, std::span<const ops::RowResult> results,
                        std::span<const int32_t> logits_ends, std::span<const ops::LogprobResult> logprobs) {
  const auto per_row = size_t{1} + static_cast<size_t>(cache_.config().num_spec);
  BZ_CHECK_GE(results.size(), plan.rows.size() * per_row);
  fetch_rows(plan, results);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    RequestState* const found = state_of(row);
    if (found == nullptr) continue;  // ended meanwhile: a surplus token
    RequestState& s = *found;
    counters_.prompt_tokens += prompt_tokens_of(row, s);
    const auto samples = results.subspan(i * per_row, per_row);
    const int32_t num_new = num_sampled(samples);
    if (row.num_samples > 1) count_drafts(samples, num_new);
    if (s.row == row.row) confirm(s, row, num_new);  // not preempted since
    const auto own_logprobs = logprobs_of(i, logits_ends, logprobs);
    if (s.scores_prompt()) accept_prompt_logprobs(s, row, own_logprobs);
    if (row.num_samples > 0) s.num_pending -= row.num_samples;
    for (const ops::RowResult& sample : samples.first(static_cast<size_t>(num_new))) {
      if (s.finished) break;
      accept_token(s, sample, s.logprobs >= 0 ? &own_logprobs.back() : nullptr);
    }
    if (row.num_samples > 0 || s.finished) deliver(s);
  }
  drop_finished();
}

namespace {

constexpr const char* kNanError = "the model's logits are not numbers (NaN)";

}  // namespace

// A preempted request scores its prompt again: what it has said already is not said twice.
void Scheduler::accept_prompt_logprobs(RequestState& s, const PlanRow& row,
                                       std::span<const ops::LogprobResult> logprobs) {
  int32_t position = row.max_seq_len - row.num_logits;  // of the token whose logits they are
  for (const ops::LogprobResult& r : logprobs) {
    if (!s.scores_prompt() || position++ != s.num_prompt_logprobs) continue;
    if (r.token < 0) return finish(s, FinishReason::kError, kNanError);
    s.prompt_scores.push_back(to_token_logprobs(r, s.prompt_logprobs));
    ++s.num_prompt_logprobs;
  }
}

void Scheduler::accept_token(RequestState& s, const ops::RowResult& result, const ops::LogprobResult* logprobs) {
  if (result.token < 0 && !mutated(Mutation::kNanIsAToken)) {
    return finish(s, FinishReason::kError, kNanError);  // ENG-1: this request alone
  }
  ++counters_.generation_tokens;
  WaitQueue::charge(s, WaitQueue::kOutputCost);
  if (std::find(s.end_ids.begin(), s.end_ids.end(), result.token) != s.end_ids.end()) {
    finish(s, FinishReason::kStop);
    return;
  }
  s.tokens.push_back(result.token);
  output_.tokens.push_back(result.token);
  output_.token_logprobs.push_back(result.logprob);
  if (logprobs != nullptr) output_.logprobs.push_back(to_token_logprobs(*logprobs, s.logprobs));
  if (s.num_outputs() == s.max_tokens) finish(s, FinishReason::kLength);
}

}  // namespace bz::engine
