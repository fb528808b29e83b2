// Generation: one completion or chat request from its prompts to its answer, whole or streamed.
//
// Each prompt is one engine request, of as many choices as are made for it; choice c of prompt p is choices_[p *
// best_of
// + c]. With best_of above n the n choices with the highest mean log probability of their tokens are given (OpenAI's
// best_of), in that order. Text is kept per choice until the socket takes it, so
// a slow reader holds at most its own answer's text. IO thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/text_stream.h"
#include "server/openai_response.h"
#include "server/services.h"

namespace bz::server {

// Prompts as token ids, checked against the context; max_tokens settled.
struct PreparedRequest {
  GenerationRequest request;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int32_t> max_tokens;  // of each prompt
  std::vector<std::string> echoes;  // each prompt's text, if it is to come back
  std::string client;               // engine::Request::client
};

// Tokenises and renders. Thread-safe; slow for long prompts. Errors name the field.
Result<PreparedRequest> prepare(const Backend& backend, const RequestLimits& limits, GenerationRequest request);

class Generation : public OutputInbox::Receiver, public std::enable_shared_from_this<Generation> {
 public:
  Generation(Services& services, std::shared_ptr<Exchange> exchange, PreparedRequest prepared,
             std::chrono::steady_clock::time_point arrival);
  // Submits every prompt, or answers with the error.
  void start();

  void on_delivery(size_t index, const Delivery& delivery) override;
  void on_delivered() override { advance(); }

 private:
  struct Choice {
    engine::RequestId id;
    engine::TextStream stream;
    std::string text;                                    // streamed: not sent yet; else: all of it
    std::vector<engine::TokenLogprobs> logprobs;         // of tokens not sent yet, if asked for
    std::vector<engine::TokenLogprobs> prompt_logprobs;  // all of them, if asked for
    int64_t text_offset = 0;                             // of the next token with a log probability, in characters
    std::string_view finish_reason;                      // empty: running
    int64_t num_tokens = 0;
    double sum_logprobs = 0;
    int32_t num_cached_tokens = 0;
    bool in_engine = false;  // cancel it if the answer ends early
    bool role_sent = false;
    bool finish_sent = false;
    std::chrono::steady_clock::time_point last_token;
  };

  Status submit(size_t prompt);
  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(prepared_.request.best_of); }
  std::vector<Choice*> best_choices();
  void take_tokens(Choice& choice, const Delivery& delivery);
  void take_prompt_logprobs(size_t index, const Delivery& delivery);
  std::string take_logprobs_json(Choice& choice);
  void finish_choice(Choice& choice, std::string_view reason);
  void count_tokens(Choice& choice, int64_t count);
  // Sends what can be sent; ends the answer when nothing is left.
  void advance();
  void advance_stream();
  void append_events(size_t index, std::string& events);
  void fail(int http_status, std::string_view message);
  void cancel_rest();
  // The engine is done with a choice, or was told to be.
  void leave_engine(Choice& choice);
  // Tells the access log what the answer was.
  void note_usage();
  void client_left();
  bool all_finished() const;
  Usage usage() const;
  std::string_view route() const;

  Services& services_;
  std::shared_ptr<Exchange> exchange_;
  PreparedRequest prepared_;
  AnswerWriter writer_;
  std::vector<Choice> choices_;
  std::chrono::steady_clock::time_point arrival_;
  std::chrono::steady_clock::time_point first_token_;  // of any choice; at first: none
  std::string error_;                                  // of the engine, for this request
  bool stream_started_ = false;
  bool ended_ = false;  // answered, or the client left
};

}  // namespace bz::server
