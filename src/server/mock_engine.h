// MockEngine: an EngineClient for tests and benchmarks of the server. Its own thread gives each running request one
// token a step, the prompt's tokens over and over, so that every answer can be foretold. Its log probabilities:
// kLogprob.
//
// Prompts that begin with these words are special: "REFUSE" (refused, naming prompt), "FULL" (no room), "FAIL" (an
// error after three tokens), "SLOW" (never a token).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "formats/byte_tokenizer.h"

namespace bz::server {

inline constexpr float kLogprob = -0.5f;  // of every token

class MockEngine : public engine::EngineClient {
 public:
  explicit MockEngine(std::chrono::microseconds step_time = std::chrono::microseconds(200))
      : step_time_(step_time), info_{"mock", 4096, formats::kByteEndToken + 1, 1024}, thread_([this] { run(); }) {}
  ~MockEngine() override {
    stopping_ = true;
    thread_.join();
  }

  const engine::EngineInfo& info() const override { return info_; }

  Result<engine::RequestId> submit(engine::Request request, std::shared_ptr<engine::Sink> sink) override {
    const std::string text(request.prompt.begin(), request.prompt.end());
    if (text.starts_with("REFUSE")) return invalid_field("prompt", "prompt is refused by the engine");
    if (text.starts_with("FULL")) return resource_exhausted("the queue is full");
    const std::lock_guard lock(mutex_);
    if (!stats_.alive) return Status(StatusCode::kUnavailable, "the engine has stopped: " + stats_.failure);
    const engine::RequestId id(next_id_);
    stats_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    last_request = request;
    for (int32_t choice = 0; choice < request.num_choices; ++choice) {
      running_.emplace(next_id_++,
                       Running{request, sink, text.starts_with("FAIL"), text.starts_with("SLOW"), choice, 0});
    }
    return id;
  }
  void cancel(engine::RequestId id) override {
    const std::lock_guard lock(mutex_);
    ++num_cancel_calls;
    const auto found = running_.find(id.value());
    if (found == running_.end()) return;
    found->second.sink->on_output(
        {.id = id, .choice = found->second.choice, .finished = engine::FinishReason::kCancelled});
    running_.erase(found);
    ++num_cancelled;
  }
  engine::EngineStats stats() const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(stats_delay_ms));  // the step that an engine is in
    const std::lock_guard lock(mutex_);
    engine::EngineStats s = stats_;
    s.requests_running = static_cast<int64_t>(running_.size());
    s.prefix_query_tokens = 30;
    s.prefix_hit_tokens = 20;
    s.prefix_misses = {{"evicted", 2}};
    s.blocks_total = 100;
    s.blocks_free = 100 - s.requests_running;
    s.steps_by_graph_key = {{"decode/8", s.steps}};
    return s;
  }

  // Fail-stop: every request ends with an error.
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    stats_.alive = false;
    stats_.failure = why;
    for (auto& [id, r] : running_) {
      r.sink->on_output(
          {.id = engine::RequestId(id), .choice = r.choice, .finished = engine::FinishReason::kError, .error = why});
    }
    running_.clear();
  }
  void dirty_null_block() {
    const std::lock_guard lock(mutex_);
    stats_.null_block_clean = false;
  }
  int64_t num_running() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(running_.size());
  }

  std::atomic<int> num_cancelled{0}, num_cancel_calls{0}, stats_delay_ms{0};
  engine::Request last_request;  // of the last submit; read it when nothing is being submitted

 private:
  struct Running {
    engine::Request request;
    std::shared_ptr<engine::Sink> sink;
    bool fail, slow;
    int32_t choice;
    int32_t produced;
  };

  void run() {
    while (!stopping_) {
      {
        const std::lock_guard lock(mutex_);
        step();
      }
      std::this_thread::sleep_for(step_time_);
    }
  }
  void step() {
    ++stats_.steps;
    for (auto it = running_.begin(); it != running_.end();) {
      Running& r = it->second;
      engine::Output output;
      output.id = engine::RequestId(it->first);
      output.choice = r.choice;
      output.num_cached_tokens = 1;
      if (!r.slow) produce(r, output);
      if (!r.slow) r.sink->on_output(output);
      it = output.finished ? running_.erase(it) : std::next(it);
    }
  }
  // The token is the best one; those behind it follow.
  static engine::TokenLogprobs logprobs_of(int32_t token, int32_t num_top) {
    engine::TokenLogprobs t{.token = token, .logprob = kLogprob, .rank = 1, .num_top = num_top};
    for (int32_t i = 0; i < num_top; ++i) {
      t.top_tokens[static_cast<size_t>(i)] = (token + i) % 256;
      t.top_logprobs[static_cast<size_t>(i)] = kLogprob - static_cast<float>(i);
    }
    return t;
  }
  void produce(Running& r, engine::Output& output) {
    if (r.fail && r.produced == 3) {
      output.finished = engine::FinishReason::kError;
      output.error = "made to fail";
      return;
    }
    const int32_t token = r.request.prompt[static_cast<size_t>(r.choice + r.produced) % r.request.prompt.size()];
    if (token == formats::kByteEndToken && !r.request.ignore_eos) {
      output.finished = engine::FinishReason::kStop;
      return;
    }
    if (r.produced == 0 && r.request.prompt_logprobs >= 0) {
      for (size_t i = 1; i < r.request.prompt.size(); ++i) {
        output.prompt_logprobs.push_back(logprobs_of(r.request.prompt[i], r.request.prompt_logprobs));
      }
    }
    if (r.request.logprobs >= 0) output.logprobs.push_back(logprobs_of(token, r.request.logprobs));
    output.tokens.push_back(token);
    output.token_logprobs.push_back(kLogprob * static_cast<float>(r.choice + 1));
    ++stats_.generation_tokens;
    if (++r.produced == r.request.max_tokens) output.finished = engine::FinishReason::kLength;
  }

  const std::chrono::microseconds step_time_;
  const engine::EngineInfo info_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Running> running_;
  engine::EngineStats stats_;
  uint64_t next_id_ = 1;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace bz::server
