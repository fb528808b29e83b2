#include "server/output_inbox.h"

namespace bz::server {

// One choice's letter box. `filling` belongs to the engine's thread (under the inbox's lock), `reading` to the IO
// thread; they are swapped, so both keep their memory.
class OutputInbox::Slot : public std::enable_shared_from_this<OutputInbox::Slot> {
 public:
  struct Half {
    std::vector<int32_t> tokens;
    std::vector<float> token_logprobs;
    std::vector<engine::TokenLogprobs> logprobs;
    std::vector<engine::TokenLogprobs> prompt_logprobs;
    int32_t num_cached_tokens = 0;
    std::optional<engine::FinishReason> finished;
    std::string error;
  };

  Slot(std::shared_ptr<Receiver> r, size_t i) : receiver(std::move(r)), index(i) {}

  Half filling, reading;
  bool queued = false;
  std::shared_ptr<Receiver> receiver;  // IO thread; null after the last delivery
  size_t index;
};

// A request's outputs, to the letter boxes of its choices.
class OutputInbox::ChoiceSink : public engine::Sink {
 public:
  ChoiceSink(std::shared_ptr<OutputInbox> inbox, std::vector<std::shared_ptr<Slot>> slots)
      : inbox_(std::move(inbox)), slots_(std::move(slots)) {}
  void on_output(const engine::Output& output) override {
    inbox_->put(*slots_.at(static_cast<size_t>(output.choice)), output);
  }

 private:
  std::shared_ptr<OutputInbox> inbox_;
  std::vector<std::shared_ptr<Slot>> slots_;
};

std::shared_ptr<engine::Sink> OutputInbox::make_sink(const std::shared_ptr<Receiver>& receiver, size_t index,
                                                     size_t num_choices) {
  std::vector<std::shared_ptr<Slot>> slots;
  for (size_t c = 0; c < num_choices; ++c) slots.push_back(std::make_shared<Slot>(receiver, index + c));
  return std::make_shared<ChoiceSink>(shared_from_this(), std::move(slots));
}

void OutputInbox::put(Slot& slot, const engine::Output& output) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(slot.filling.tokens, output.tokens);
  append(slot.filling.token_logprobs, output.token_logprobs);
  append(slot.filling.logprobs, output.logprobs);
  append(slot.filling.prompt_logprobs, output.prompt_logprobs);
  slot.filling.num_cached_tokens = output.num_cached_tokens;
  if (output.finished) {
    slot.filling.finished = output.finished;
    slot.filling.error = output.error;
  }
  if (!slot.queued) {
    slot.queued = true;
    filled_.push_back(slot.shared_from_this());
  }
  if (posted_) return;
  posted_ = true;
  post_([self = shared_from_this()] { self->deliver(); });
}

void OutputInbox::deliver() {
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    taken_.swap(filled_);
    for (const auto& slot : taken_) {
      slot->queued = false;
      std::swap(slot->filling, slot->reading);
    }
  }
  for (const auto& slot : taken_) {
    Slot::Half& half = slot->reading;
    if (slot->receiver) {
      slot->receiver->on_delivery(slot->index, {half.tokens, half.token_logprobs, half.logprobs, half.prompt_logprobs,
                                                half.num_cached_tokens, half.finished, half.error});
    }
    half.tokens.clear();
    half.token_logprobs.clear();
    half.logprobs.clear();
    half.prompt_logprobs.clear();
  }
  for (const auto& slot : taken_) {
    if (!slot->receiver) continue;
    slot->receiver->on_delivered();
    if (slot->reading.finished) slot->receiver.reset();
  }
  taken_.clear();
}

void OutputInbox::close() {
  std::vector<std::shared_ptr<Slot>> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  post_ = nullptr;
  dropped.swap(filled_);
}

}  // namespace bz::server
