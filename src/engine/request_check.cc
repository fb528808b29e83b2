// Scheduler::check(): could this request ever run? And max_request_tokens(), what it is about.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/scheduler.h"

namespace bz::engine {
namespace {

Status check_sampling(const SamplingParams& p) {
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return invalid_field("temperature", "temperature is {}: must be a number of at least 0", p.temperature);
  }
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid_field("top_p", "top_p is {}: must be above 0, at most 1", p.top_p);
  if (p.top_k < 0) return invalid_field("top_k", "top_k is {}: must be at least 0 (0: off)", p.top_k);
  if (!(p.min_p >= 0 && p.min_p < 1))
    return invalid_field("min_p", "min_p is {}: must be at least 0, below 1", p.min_p);
  if (!(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0)) {
    return invalid_field("repetition_penalty", "repetition_penalty is {}: must be above 0", p.repetition_penalty);
  }
  for (const auto& [name, value] :
       {std::pair("presence_penalty", p.presence_penalty), std::pair("frequency_penalty", p.frequency_penalty)}) {
    if (!(std::fabs(value) <= 2)) return invalid_field(name, "{} is {}: must be from -2 to 2", name, value);
  }
  return ok_status();
}

Status check_logit_bias(const std::vector<LogitBias>& biases, int32_t vocab_size) {
  constexpr const char* kField = "logit_bias";
  if (biases.size() > kMaxLogitBias) {
    return invalid_field(kField, "logit_bias has {} entries: at most {} are allowed", biases.size(), kMaxLogitBias);
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    const LogitBias& b = biases[i];
    if (b.token < 0 || b.token >= vocab_size) {
      return invalid_field(kField, "logit_bias names token {}: ids are from 0 to {}", b.token, vocab_size - 1);
    }
    if (!(std::fabs(b.bias) <= kMaxLogitBiasValue)) {
      return invalid_field(kField, "logit_bias of token {} is {}: must be from -100 to 100", b.token, b.bias);
    }
    const auto same = [&](const LogitBias& other) { return other.token == b.token; };
    if (std::any_of(biases.begin() + static_cast<int64_t>(i) + 1, biases.end(), same)) {
      return invalid_field(kField, "logit_bias names token {} twice", b.token);
    }
  }
  return ok_status();
}

Status check_outputs(const Request& r, int32_t vocab_size) {
  if (r.max_tokens < 1) return invalid_field("max_tokens", "max_tokens is {}: must be at least 1", r.max_tokens);
  if (r.min_tokens < 0 || r.min_tokens > r.max_tokens) {
    return invalid_field("min_tokens", "min_tokens is {}: must be from 0 to max_tokens, {}", r.min_tokens,
                         r.max_tokens);
  }
  if (r.stop_token_ids.size() > kMaxStopTokenIds) {
    return invalid_field("stop_token_ids", "stop_token_ids has {} ids: at most {} are allowed", r.stop_token_ids.size(),
                         kMaxStopTokenIds);
  }
  for (const int32_t id : r.stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return invalid_field("stop_token_ids", "stop_token_ids names token {}: ids are from 0 to {}", id, vocab_size - 1);
    }
  }
  if (r.num_choices < 1 || r.num_choices > kMaxChoices) {
    return invalid_field("n", "n is {}: must be from 1 to {}", r.num_choices, kMaxChoices);
  }
  if (std::abs(r.priority) > kMaxPriority) {
    return invalid_field("priority", "priority is {}: must be from {} to {}", r.priority, -kMaxPriority, kMaxPriority);
  }
  for (const auto& [name, count] :
       {std::pair("logprobs", r.logprobs), std::pair("prompt_logprobs", r.prompt_logprobs)}) {
    if (count < -1 || count > kMaxTopLogprobs) {
      return invalid_field(name, "{} is {}: at most {} alternatives are given", name, count, kMaxTopLogprobs);
    }
  }
  return ok_status();
}

}  // namespace

Status Scheduler::check(const Request& r) const {
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  if (prompt == 0) return invalid_field("prompt", "the prompt is empty");
  BZ_TRY(check_outputs(r, config_.vocab_size));
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
  BZ_TRY(check_logit_bias(r.sampling.logit_bias, config_.vocab_size));
  const int32_t blocks = cache_.num_blocks_for(static_cast<int32_t>(prompt) + r.max_tokens);
  if (blocks <= cache_.num_usable_blocks()) return ok_status();
  const bool too_long = prompt + 1 > max_request_tokens();
  return Status(StatusCode::kResourceExhausted,
                fmt::format("{} tokens need {} cache blocks, the cache has {}: {} or start with a larger "
                            "--kv-cache-bytes",
                            prompt + r.max_tokens, blocks, cache_.num_usable_blocks(),
                            too_long ? "shorten the prompt" : "lower max_tokens"),
                too_long ? "prompt" : "max_tokens");
}

int32_t Scheduler::max_request_tokens() const {
  int32_t fits = 0, most = config_.max_model_len;
  while (fits < most) {
    const int32_t middle = most - (most - fits) / 2;
    if (cache_.num_blocks_for(middle) <= cache_.num_usable_blocks()) {
      fits = middle;
    } else {
      most = middle - 1;
    }
  }
  return fits;
}

}  // namespace bz::engine
