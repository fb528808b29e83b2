#include "sim/traffic.h"

#include <algorithm>

#include "ops/null/null_ops.h"

namespace bz::sim {
namespace {

constexpr size_t kRecentPrompts = 6;

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Client::Client(engine::Request request, const TrafficConfig& config)
    : request_(std::move(request)), tokens_(request_.prompt), num_expected_(static_cast<size_t>(request_.max_tokens)) {
  for (int32_t i = 0; i < request_.max_tokens; ++i) {
    const int32_t token = ops::null::token_of(seed(), static_cast<uint32_t>(i), config.vocab_size);
    tokens_.push_back(token);
    const bool ends =
        (!request_.ignore_eos && contains(config.end_token_ids, token)) || contains(request_.stop_token_ids, token);
    if (!ends || reason_ == engine::FinishReason::kStop) continue;
    reason_ = engine::FinishReason::kStop;
    num_expected_ = static_cast<size_t>(i);
  }
}

void Client::on_output(const engine::Output& output) {
  const auto complain = [&](std::string what) {
    if (error_.empty()) error_ = fmt::format("request {}: {}", id.value(), what);
  };
  if (finished_) complain("an output after the last one");
  if (output.id != id) complain(fmt::format("got an output of request {}", output.id.value()));
  for (const int32_t token : output.tokens) {
    const size_t at = num_received_++;
    if (at >= num_expected_) return complain("a token past its end");
    const int32_t want = tokens_[request_.prompt.size() + at];
    if (token != want) complain(fmt::format("output {} is {}, should be {}", at, token, want));
  }
  if (!output.finished) return;
  finished_ = true;
  const engine::FinishReason reason = *output.finished;
  if (reason == engine::FinishReason::kCancelled) {
    if (!left_) complain("cancelled, but its client stayed");
  } else if (reason != reason_ || num_received_ != num_expected_) {
    complain(fmt::format("ended with {} after {} tokens, should be {} after {} {}", finish_reason_name(reason),
                         num_received_, finish_reason_name(reason_), num_expected_, output.error));
  }
}

Choices::Choices(engine::Request request, const TrafficConfig& config) : request_(std::move(request)) {
  for (int32_t n = 0; n < request_.num_choices; ++n) {
    engine::Request one = request_;
    one.sampling.seed += static_cast<uint64_t>(n);
    clients_.push_back(std::make_shared<Client>(std::move(one), config));
  }
}

std::shared_ptr<Choices> Traffic::arrival(Microseconds now) {
  if (now < next_arrival_) return nullptr;
  // Bursts and lulls: half the gaps are short, some are long.
  next_arrival_ = now + random_.skewed(0, static_cast<int32_t>(4 * config_.mean_gap));
  engine::Request request;
  request.prompt = prompt();
  const int32_t room = config_.max_model_len - static_cast<int32_t>(request.prompt.size());
  request.max_tokens = random_.skewed(1, room);
  request.sampling.seed = next_seed_;
  if (random_.chance(config_.fork_percent)) request.num_choices = random_.between(2, 3);
  next_seed_ += static_cast<uint64_t>(request.num_choices);
  request.sampling.temperature = random_.chance(50) ? 0.0f : 1.0f;
  request.ignore_eos = random_.chance(config_.ignore_eos_percent);
  if (random_.chance(10)) request.stop_token_ids = {random_.between(0, config_.vocab_size - 1)};
  auto choices = std::make_shared<Choices>(std::move(request), config_);
  for (const auto& client : choices->clients()) {
    if (!random_.chance(config_.cancel_percent)) continue;
    client->leaves_at = now + random_.between(1, static_cast<int32_t>(20 * config_.mean_gap));
  }
  return choices;
}

std::vector<int32_t> Traffic::prompt() {
  std::vector<int32_t> tokens;
  if (!recent_.empty() && random_.chance(config_.share_percent)) {
    tokens = recent_[static_cast<size_t>(random_.between(0, static_cast<int32_t>(recent_.size()) - 1))];
    tokens.resize(static_cast<size_t>(random_.between(1, static_cast<int32_t>(tokens.size()))));
  }
  const auto length = static_cast<size_t>(random_.skewed(1, config_.max_model_len - 1));
  while (tokens.size() < length) tokens.push_back(random_.between(0, config_.vocab_size - 1));
  if (recent_.size() < kRecentPrompts) {
    recent_.push_back(tokens);
  } else {
    recent_[static_cast<size_t>(random_.between(0, kRecentPrompts - 1))] = tokens;
  }
  return tokens;
}

}  // namespace bz::sim
