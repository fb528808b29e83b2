// OutputInbox: from the engine's thread to the IO thread. A Sink of it copies a request's new tokens under a short lock
// and wakes the IO thread once, however many requests a step has fed; it never blocks on a client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"

namespace bz::server {

struct Delivery {
  std::span<const int32_t> tokens;
  std::span<const float> token_logprobs;                   // one a token
  std::span<const engine::TokenLogprobs> logprobs;         // of the tokens, if asked for
  std::span<const engine::TokenLogprobs> prompt_logprobs;  // if asked for
  int32_t num_cached_tokens = 0;
  std::optional<engine::FinishReason> finished;
  std::string_view error;
};

class OutputInbox : public std::enable_shared_from_this<OutputInbox> {
 public:
  // Gets a request's outputs on the IO thread.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // `index`: as given to make_sink.
    virtual void on_delivery(size_t index, const Delivery& delivery) = 0;
    // After the deliveries of one wake-up.
    virtual void on_delivered() = 0;
  };
  // Runs a task on the IO thread.
  using Post = std::function<void(std::function<void()>)>;

  explicit OutputInbox(Post post) : post_(std::move(post)) {}
  // What still comes is dropped. Afterwards `post` is not called any more.
  void close();
  // The sink of a request with so many choices: choice c is delivered with index + c. It keeps the receiver until every
  // choice's last output was delivered.
  std::shared_ptr<engine::Sink> make_sink(const std::shared_ptr<Receiver>& receiver, size_t index, size_t num_choices);

 private:
  class Slot;
  class ChoiceSink;
  void put(Slot& slot, const engine::Output& output);
  void deliver();

  std::mutex mutex_;  // guards everything below, and the slots' filling half
  Post post_;
  bool closed_ = false;
  bool posted_ = false;
  std::vector<std::shared_ptr<Slot>> filled_;
  std::vector<std::shared_ptr<Slot>> taken_;  // IO thread only
};

}  // namespace bz::server
