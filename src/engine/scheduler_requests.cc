// How requests come and go: their states, rows and last words.
#include <utility>

#include "base/mutation.h"
#include "engine/scheduler.h"

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

namespace {

// What a request's rows have in common, step after step.
ops::RowSampling sampling_of(const Request& request) {
  const SamplingParams& p = request.sampling;
  ops::RowSampling r = {p.temperature, p.top_p, p.top_k, p.min_p, 0, p.seed};
  ops::LogitAdjust& a = r.adjust;
  a.repetition_penalty = p.repetition_penalty;
  a.presence_penalty = p.presence_penalty;
  a.frequency_penalty = p.frequency_penalty;
  a.prompt_len = static_cast<int32_t>(request.prompt.size());
  a.min_tokens = request.min_tokens;
  a.num_bias = static_cast<int32_t>(p.logit_bias.size());
  return r;
}

void set_end_ids(RequestState& s, const Request& request, const std::vector<int32_t>& of_model) {
  if (request.stop_token_ids.empty() && !request.ignore_eos) {
    s.end_ids = of_model;
    return;
  }
  if (!request.ignore_eos) s.own_end_ids = of_model;
  s.own_end_ids.insert(s.own_end_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  s.end_ids = s.own_end_ids;
}

}  // namespace

StatePtr Scheduler::new_state(RequestId id, int32_t choice, Request request, std::shared_ptr<Sink> sink) {
  auto s = std::make_unique<RequestState>();
  s->id = id;
  s->sink = std::move(sink);
  s->choice = static_cast<int16_t>(choice);
  s->priority = static_cast<int16_t>(request.priority);
  s->logprobs = static_cast<int16_t>(request.logprobs);
  s->prompt_logprobs = static_cast<int16_t>(request.prompt_logprobs);
  s->num_prompt = static_cast<int32_t>(request.prompt.size());
  s->max_tokens = request.max_tokens;
  s->sampling = sampling_of(request);
  s->logit_bias = std::move(request.sampling.logit_bias);
  s->tokens = std::move(request.prompt);
  s->tokens.reserve(s->tokens.size() + static_cast<size_t>(request.max_tokens));  // ENG-3
  set_end_ids(*s, request, config_.end_token_ids);
  by_id_[id] = s.get();
  waiting_.open(*s, request.client);
  return s;
}

void Scheduler::add(RequestId id, Request request, std::shared_ptr<Sink> sink) {
  const int32_t num_choices = request.num_choices;
  // Of a single token there is nothing to share; a prompt that is scored is scored for each choice.
  const bool shared = request.prompt.size() > 1 && request.prompt_logprobs < 0;
  std::vector<StatePtr> others;
  for (int32_t n = 1; n < num_choices; ++n) {
    Request other = request;
    other.sampling.seed += static_cast<uint64_t>(n);
    others.push_back(new_state(RequestId(id.value() + static_cast<uint64_t>(n)), n, std::move(other), sink));
  }
  StatePtr first = new_state(id, 0, std::move(request), std::move(sink));
  if (shared) {
    for (const StatePtr& s : others) s->leader = first.get();
    first->followers.swap(others);
  }
  waiting_.add(std::move(first));
  for (StatePtr& s : others) waiting_.add(std::move(s));
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

void Scheduler::give_row(RequestState& s, kv::RowId row) {
  s.row = row;
  by_row_[static_cast<size_t>(row.value())] = &s;
}

void Scheduler::release_row(RequestState& s) {
  if (s.row == kv::kNullRow) return;
  cache_.release(s.row);
  by_row_[static_cast<size_t>(s.row.value())] = nullptr;
  s.row = kv::kNullRow;
  s.num_computed = s.num_confirmed = s.num_rejected = 0;
}

void Scheduler::finish(RequestState& s, FinishReason reason, std::string error) {
  if (s.row == kv::kNullRow) {
    waiting_ended_.push_back(&s);
  } else {
    running_ended_ = true;
  }
  if (mutated(Mutation::kFinishKeepsRow)) {
    by_row_[static_cast<size_t>(s.row.value())] = nullptr;
  } else {
    release_row(s);
  }
  s.finished = reason;
  output_.error = std::move(error);
  ++counters_.finished;
  if (reason == FinishReason::kError) ++counters_.failed;
}

void Scheduler::deliver(RequestState& s) {
  output_.id = s.id;
  output_.choice = s.choice;
  output_.num_cached_tokens = s.num_cached_tokens;
  output_.finished = s.finished;
  if (s.prompt_logprobs >= 0) output_.prompt_logprobs.swap(s.prompt_scores);
  s.sink->on_output(output_);
  output_.tokens.clear();
  output_.token_logprobs.clear();
  output_.logprobs.clear();
  output_.prompt_logprobs.clear();
  output_.error.clear();
}

// The last that is done for a request. Of those who waited for a prompt that will not come, the first computes it.
void Scheduler::close(RequestState& s) {
  waiting_.close(s);
  by_id_.erase(s.id);
  if (s.followers.empty()) return;
  StatePtr heir = std::move(s.followers.front());
  s.followers.erase(s.followers.begin());
  heir->leader = nullptr;
  for (const StatePtr& follower : s.followers) follower->leader = heir.get();
  heir->followers = std::move(s.followers);
  waiting_.add(std::move(heir));
}

// Who waits is not looked through: they may be many.
void Scheduler::drop_finished() {
  // Followers first: one that has ended is nobody's heir.
  for (RequestState*& s : waiting_ended_) {
    if (s->leader == nullptr) continue;
    close(*s);
    std::erase_if(s->leader->followers, [&](const StatePtr& follower) { return follower.get() == s; });
    s = nullptr;
  }
  for (RequestState* s : waiting_ended_) {
    if (s != nullptr) close(*waiting_.take(*s));
  }
  waiting_ended_.clear();
  if (!std::exchange(running_ended_, false)) return;
  std::erase_if(running_, [&](const StatePtr& s) {
    if (s->finished) close(*s);
    return s->finished.has_value();
  });
}

}  // namespace bz::engine
