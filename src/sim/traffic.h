// Traffic: what happens to a simulated engine, and when. A virtual clock, arrivals, lengths, and clients that leave,
// all chosen by the seed. Each client knows the whole answer it will get, since the null device makes tokens from
// (seed, index), and checks every token that comes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "sim/random.h"

namespace bz::sim {

using Microseconds = int64_t;

struct TrafficConfig {
  int32_t vocab_size = 0;
  int32_t max_model_len = 0;
  std::vector<int32_t> end_token_ids;
  Microseconds mean_gap = 0;   // between arrivals
  int32_t share_percent = 0;   // prompts that begin as an earlier one did
  int32_t cancel_percent = 0;  // clients that leave before their answer ends
  int32_t ignore_eos_percent = 0;
  int32_t fork_percent = 0;  // requests for several answers
};

class Client {
 public:
  Client(engine::Request request, const TrafficConfig& config);

  const engine::Request& request() const { return request_; }
  uint64_t seed() const { return request_.sampling.seed; }
  // Prompt and every token that could be sampled, those after an end token too: they may be computed ahead.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  bool finished() const { return finished_; }
  int64_t num_received() const { return static_cast<int64_t>(num_received_); }
  // What was wrong with the answer; empty: nothing so far.
  const std::string& error() const { return error_; }

  void leave() { left_ = true; }
  void on_output(const engine::Output& output);

  engine::RequestId id;
  Microseconds leaves_at = 0;  // 0: stays

 private:
  engine::Request request_;
  std::vector<int32_t> tokens_;
  size_t num_expected_ = 0;  // output tokens of the whole answer
  engine::FinishReason reason_ = engine::FinishReason::kLength;
  size_t num_received_ = 0;
  bool left_ = false;
  bool finished_ = false;
  std::string error_;
};

// The answers to one request: a client each, told apart by the seed and by Output::choice (n > 1 forks a row, KV-6).
class Choices final : public engine::Sink {
 public:
  Choices(engine::Request request, const TrafficConfig& config);

  const engine::Request& request() const { return request_; }
  const std::vector<std::shared_ptr<Client>>& clients() const { return clients_; }
  void on_output(const engine::Output& output) override {
    clients_.at(static_cast<size_t>(output.choice))->on_output(output);
  }

 private:
  engine::Request request_;
  std::vector<std::shared_ptr<Client>> clients_;
};

class Traffic {
 public:
  Traffic(uint64_t seed, const TrafficConfig& config) : random_(seed), config_(config) {}

  // The request that arrives by `now`, if one does.
  std::shared_ptr<Choices> arrival(Microseconds now);
  Microseconds next_arrival() const { return next_arrival_; }

 private:
  std::vector<int32_t> prompt();

  Random random_;
  TrafficConfig config_;
  Microseconds next_arrival_ = 0;
  uint64_t next_seed_ = 1;
  std::vector<std::vector<int32_t>> recent_;  // prompts that later ones may share a beginning with
};

}  // namespace bz::sim
