#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bz::engine {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "?";
}

Scheduler::Scheduler(const SchedulerConfig& config, const kv::CacheConfig& cache) : config_(config), cache_(cache) {
  BZ_CHECK_GE(config.max_num_seqs, 1);
  BZ_CHECK_GE(config.max_num_batched_tokens, config.max_num_seqs);
  BZ_CHECK_GT(cache.max_rows, config.max_num_seqs);  // a row each, and the null row
  running_.reserve(static_cast<size_t>(config.max_num_seqs));
}

namespace {

Status check_sampling(const SamplingParams& p) {
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return invalid_field("temperature", "temperature is {}: must be a number of at least 0", p.temperature);
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid_field("top_p", "top_p is {}: must be above 0, at most 1", p.top_p);
  if (p.top_k < 0) return invalid_field("top_k", "top_k is {}: must be at least 0 (0: off)", p.top_k);
  if (!(p.min_p >= 0 && p.min_p < 1))
    return invalid_field("min_p", "min_p is {}: must be at least 0, below 1", p.min_p);
  return ok_status();
}

}  // namespace

Status Scheduler::check(const Request& r) const {
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  if (prompt == 0) return invalid_field("prompt", "the prompt is empty");
  if (r.max_tokens < 1) return invalid_field("max_tokens", "max_tokens is {}: must be at least 1", r.max_tokens);
  if (prompt + 1 > config_.max_model_len) {
    return invalid_field("prompt", "the prompt has {} tokens, the context {}: shorten the prompt", prompt,
                         config_.max_model_len);
  }
  if (prompt + r.max_tokens > config_.max_model_len) {
    return invalid_field("max_tokens",
                         "{} prompt tokens and max_tokens {} exceed the context of {} tokens: at most {} fit", prompt,
                         r.max_tokens, config_.max_model_len, config_.max_model_len - prompt);
  }
  BZ_TRY(check_sampling(r.sampling));
  const int32_t blocks = cache_.num_blocks_for(static_cast<int32_t>(prompt) + r.max_tokens);
  if (blocks > cache_.num_usable_blocks()) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("{} tokens need {} cache blocks, the cache has {}: lower max_tokens or start with a larger "
                    "--kv-cache-bytes",
                    prompt + r.max_tokens, blocks, cache_.num_usable_blocks()),
        "max_tokens");
  }
  return ok_status();
}

void Scheduler::add(RequestId id, Request request, std::shared_ptr<Sink> sink) {
  auto s = std::make_unique<RequestState>();
  s->id = id;
  s->tokens = request.prompt;
  s->tokens.reserve(request.prompt.size() + static_cast<size_t>(request.max_tokens));  // ENG-3
  s->request = std::move(request);
  s->sink = std::move(sink);
  s->output.id = id;
  s->output.tokens.reserve(1);
  by_id_[id] = s.get();
  waiting_.push_back(std::move(s));
}

bool Scheduler::cancel(RequestId id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return false;
  finish(*it->second, FinishReason::kCancelled);
  deliver(*it->second);
  drop_finished();
  return true;
}

void Scheduler::finish_all(FinishReason reason, const std::string& error) {
  for (const auto& [id, s] : by_id_) {
    finish(*s, reason, error);
    deliver(*s);
  }
  drop_finished();
}

void Scheduler::schedule(StepPlan& plan) {
  plan.clear();
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

// Requests with exactly one token to compute. A victim of preemption stands behind the row it makes room for, so it is
// never in the plan yet.
void Scheduler::plan_decodes(StepPlan& plan) {
  for (size_t i = 0; i < running_.size() && row_left(plan); ++i) {
    if (running_[i]->num_uncomputed() != 1 || running_[i]->outputs_complete()) continue;
    const kv::RowId row = running_[i]->row;
    while (i < running_.size() && !cache_.can_append(row, 1)) preempt_last();
    if (i == running_.size()) return;  // it was the last one itself
    add_row(plan, *running_[i], 1);
  }
}

void Scheduler::plan_chunks(StepPlan& plan) {
  for (const StatePtr& s : running_) {
    if (!row_left(plan)) return;
    const int32_t left = s->num_uncomputed();
    const int32_t chunk = std::min(left, token_budget(plan));
    // Without room it waits: those that decode end, or are preempted for each other.
    if (left > 1 && cache_.can_append(s->row, chunk)) add_row(plan, *s, chunk);
  }
}

void Scheduler::admit_waiting(StepPlan& plan) {
  while (!waiting_.empty() && row_left(plan) && static_cast<int32_t>(running_.size()) < config_.max_num_seqs &&
         cache_.can_admit()) {
    RequestState& s = *waiting_.front();
    if (s.num_pending > 0) return;  // preempted with a result on its way: its tokens are not known yet
    cache_.find_prefix({s.tokens}, hit_);
    // Room for all its tokens and the next, so that an admission is not undone at once.
    if (!cache_.can_admit(hit_, s.num_tokens() + 1 - hit_.num_tokens)) return;
    admit_row(s);
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    add_row(plan, s, std::min(s.num_uncomputed(), token_budget(plan)));
  }
}

// The row begins with the prefix that hit_ found.
void Scheduler::admit_row(RequestState& s) {
  s.row = cache_.admit(hit_);
  s.num_computed = hit_.num_tokens;
  s.first_output = static_cast<uint32_t>(s.num_outputs());
  if (s.num_outputs() == 0) s.output.num_cached_tokens = hit_.num_tokens;
  if (!cache_.config().prefix_cache) return;
  counters_.prefix_query_tokens += s.num_tokens();
  counters_.prefix_hit_tokens += hit_.num_tokens;
  for (int32_t g = 0; g < cache_.tables().num_groups(); ++g) {
    ++counters_.prefix_misses[static_cast<size_t>(hit_.groups[static_cast<size_t>(g)].reason)];
  }
}

void Scheduler::add_row(StepPlan& plan, RequestState& s, int32_t num_tokens) {
  cache_.append(s.row, num_tokens);
  const bool last = num_tokens == s.num_uncomputed();
  const SamplingParams& p = s.request.sampling;
  PlanRow row;
  row.request = s.id;
  row.row = s.row;
  row.query_len = num_tokens;
  row.sample = last;
  row.max_seq_len = s.num_computed + num_tokens;
  row.sampling = {p.temperature, p.top_p, p.top_k, p.min_p, s.first_output, p.seed};
  plan.rows.push_back(row);
  // A token that this row sampled itself is on the device already: the host need not have seen it.
  const bool from_row_state = num_tokens == 1 && s.num_outputs() + s.num_pending > static_cast<int32_t>(s.first_output);
  if (from_row_state) {
    plan.tokens.push_back(ops::kTokenFromRowState);
  } else {
    const auto begin = s.tokens.begin() + s.num_computed;
    plan.tokens.insert(plan.tokens.end(), begin, begin + num_tokens);
  }
  s.num_computed += num_tokens;
  if (last) ++s.num_pending;
}

void Scheduler::preempt_last() {
  BZ_CHECK(!running_.empty());
  release_row(*running_.back());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++counters_.preempted;
}

void Scheduler::release_row(RequestState& s) {
  if (s.row == kv::kNullRow) return;
  cache_.release(s.row);
  s.row = kv::kNullRow;
  s.num_computed = 0;
}

void Scheduler::process(const StepPlan& plan, std::span<const ops::RowResult> results) {
  BZ_CHECK_GE(results.size(), plan.rows.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    if (row.query_len > 1) counters_.prompt_tokens += row.query_len;
    const auto it = by_id_.find(row.request);
    if (it == by_id_.end()) continue;  // ended meanwhile: a surplus token
    RequestState& s = *it->second;
    if (s.row == row.row) {  // not preempted since
      cache_.set_processed(s.row, row.max_seq_len);
      cache_.publish(s.row, {std::span(s.tokens).first(static_cast<size_t>(row.max_seq_len))});
    }
    if (!row.sample) continue;
    --s.num_pending;
    accept_token(s, results[i]);
    deliver(s);
  }
  drop_finished();
}

void Scheduler::accept_token(RequestState& s, const ops::RowResult& result) {
  if (result.token < 0) {
    finish(s, FinishReason::kError, "the model's logits are not numbers (NaN)");  // ENG-1: this request alone
    return;
  }
  ++counters_.generation_tokens;
  const auto is = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), result.token) != ids.end();
  };
  if ((!s.request.ignore_eos && is(config_.end_token_ids)) || is(s.request.stop_token_ids)) {
    finish(s, FinishReason::kStop);
    return;
  }
  s.tokens.push_back(result.token);
  s.output.tokens.push_back(result.token);
  if (s.num_outputs() == s.request.max_tokens) finish(s, FinishReason::kLength);
}

void Scheduler::finish(RequestState& s, FinishReason reason, std::string error) {
  release_row(s);
  s.output.finished = reason;
  s.output.error = std::move(error);
  ++counters_.finished;
  if (reason == FinishReason::kError) ++counters_.failed;
}

void Scheduler::deliver(RequestState& s) {
  s.sink->on_output(s.output);
  s.output.tokens.clear();
}

void Scheduler::drop_finished() {
  const auto finished = [this](const StatePtr& s) {
    if (!s->output.finished.has_value()) return false;
    by_id_.erase(s->id);
    return true;
  };
  std::erase_if(running_, finished);
  std::erase_if(waiting_, finished);
}

}  // namespace bz::engine
