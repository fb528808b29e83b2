#include "server/openai_response.h"

#include "server/json.h"

namespace bz::server {
namespace {

std::string usage_json(const Usage& u) {
  return fmt::format(
      "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
      "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
      u.prompt_tokens, u.completion_tokens, u.prompt_tokens + u.completion_tokens, u.cached_tokens);
}

std::string string_or_null(std::string_view text) { return text.empty() ? "null" : json_string(text); }

}  // namespace

std::string_view finish_word(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop: return "stop";
    case engine::FinishReason::kLength: return "length";
    case engine::FinishReason::kCancelled: return "abort";
    case engine::FinishReason::kError: return "error";
  }
  return "error";
}

AnswerWriter::AnswerWriter(bool chat, const std::string& id, int64_t created, const std::string& model,
                           bool include_usage)
    : chat_(chat) {
  common_ = fmt::format("\"id\":{},\"created\":{},\"model\":{}", json_string(id), created, json_string(model));
  const char* object = chat ? "chat.completion.chunk" : "text_completion";
  event_start_ = fmt::format("data: {{{},\"object\":\"{}\",\"choices\":[", common_, object);
  event_end_ = include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

std::string AnswerWriter::whole(const std::vector<FinishedChoice>& choices, const Usage& usage) const {
  std::string out =
      fmt::format("{{{},\"object\":\"{}\",\"choices\":[", common_, chat_ ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i) out += ',';
    fmt::format_to(std::back_inserter(out), "{{\"index\":{},", i);
    out += chat_ ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":";
    append_json_string(out, choices[i].text);
    if (chat_) out += '}';
    if (!chat_ && !choices[i].prompt_logprobs.empty()) out += ",\"prompt_logprobs\":" + choices[i].prompt_logprobs;
    end_choice(out, choices[i].finish_reason, choices[i].logprobs);
  }
  out += ']';
  if (chat_ && !choices[0].prompt_logprobs.empty()) out += ",\"prompt_logprobs\":" + choices[0].prompt_logprobs;
  out += fmt::format(",\"usage\":{}}}", usage_json(usage));
  return out;
}

void AnswerWriter::begin_choice(std::string& out, size_t index) const {
  out += event_start_;
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},", index);
}

void AnswerWriter::end_choice(std::string& out, std::string_view reason, std::string_view logprobs) const {
  out += ",\"logprobs\":";
  out += logprobs;
  out += ",\"finish_reason\":";
  if (reason.empty()) {
    out += "null}";
  } else {
    fmt::format_to(std::back_inserter(out), "\"{}\"}}", reason);
  }
}

void AnswerWriter::role_event(std::string& out, size_t index) const {
  begin_choice(out, index);
  out += "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}";
  end_choice(out, {}, "null");
  out += event_end_;
}

void AnswerWriter::text_event(std::string& out, size_t index, std::string_view text, std::string_view logprobs) const {
  begin_choice(out, index);
  out += chat_ ? "\"delta\":{\"content\":" : "\"text\":";
  append_json_string(out, text);
  if (chat_) out += '}';
  end_choice(out, {}, logprobs);
  out += event_end_;
}

void AnswerWriter::finish_event(std::string& out, size_t index, std::string_view text, std::string_view reason,
                                std::string_view logprobs) const {
  begin_choice(out, index);
  if (chat_) {
    out += "\"delta\":{}";
  } else {
    out += "\"text\":";
    append_json_string(out, text);
  }
  end_choice(out, reason, logprobs);
  out += event_end_;
}

void AnswerWriter::usage_event(std::string& out, const Usage& usage) const {
  out += event_start_;
  out += fmt::format("],\"usage\":{}}}\n\n", usage_json(usage));
}

std::string error_body(int http_status, std::string_view message, std::string_view param, std::string_view code) {
  const char* type = http_status >= 500 ? "server_error" : "invalid_request_error";
  return fmt::format("{{\"error\":{{\"message\":{},\"type\":\"{}\",\"param\":{},\"code\":{}}}}}", json_string(message),
                     type, string_or_null(param), string_or_null(code));
}

HttpReply error_reply(int http_status, std::string_view message, std::string_view param, std::string_view code) {
  HttpReply reply{.status = http_status, .body = error_body(http_status, message, param, code)};
  if (http_status == 503) reply.headers = {{"Retry-After", "1"}};  // a full house, or one that opens
  return reply;
}

int http_status_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return 200;
    case StatusCode::kInvalidArgument: return 400;
    case StatusCode::kNotFound: return 404;
    // A named field asked for too much; otherwise the house is full.
    case StatusCode::kResourceExhausted: return status.param().empty() ? 503 : 400;
    case StatusCode::kUnavailable: return 503;
    case StatusCode::kInternal: return 500;
  }
  return 500;
}

HttpReply error_reply(const Status& status) {
  const bool no_model = status.code() == StatusCode::kNotFound && status.param() == "model";
  return error_reply(http_status_of(status), status.message(), status.param(), no_model ? "model_not_found" : "");
}

}  // namespace bz::server
