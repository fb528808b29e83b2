// Answers in OpenAI's form: whole bodies, stream events, errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "server/http.h"

namespace bz::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt's, taken from the prefix cache
};

struct FinishedChoice {
  std::string_view text;
  std::string_view finish_reason;
  std::string logprobs = "null";  // JSON
  std::string prompt_logprobs;    // JSON; empty: not asked for
};

// "stop", "length"; "abort" and "error" for what OpenAI has no word for.
std::string_view finish_word(engine::FinishReason reason);

// Writes the answers to one request. Events are appended to a string: `data: {...}\n\n`.
class AnswerWriter {
 public:
  // `include_usage`: events carry "usage": null, as OpenAI's do then.
  AnswerWriter(bool chat, const std::string& id, int64_t created, const std::string& model, bool include_usage);

  std::string whole(const std::vector<FinishedChoice>& choices, const Usage& usage) const;
  // Chat: the first event of a choice.
  void role_event(std::string& out, size_t index) const;
  // `logprobs`: JSON, of the tokens since the event before.
  void text_event(std::string& out, size_t index, std::string_view text, std::string_view logprobs) const;
  // The last event of a choice. `text`: what is left; empty in chat.
  void finish_event(std::string& out, size_t index, std::string_view text, std::string_view reason,
                    std::string_view logprobs) const;
  void usage_event(std::string& out, const Usage& usage) const;
  static constexpr std::string_view kDone = "data: [DONE]\n\n";

 private:
  void begin_choice(std::string& out, size_t index) const;
  void end_choice(std::string& out, std::string_view reason, std::string_view logprobs) const;

  bool chat_;
  std::string common_;       // "id":..,"created":..,"model":..
  std::string event_start_;  // data: {..."choices":[{"index":
  std::string event_end_;    // ]}\n\n, with a null usage if asked for
};

// {"error": {"message", "type", "param", "code"}}
std::string error_body(int http_status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
HttpReply error_reply(int http_status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});
HttpReply error_reply(const Status& status);
int http_status_of(const Status& status);

}  // namespace bz::server
