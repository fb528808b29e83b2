// The bodies of /v1/completions and /v1/chat/completions -> checked, plain values.
//
// Unknown fields are ignored. A known field (OpenAI's, and those of vLLM that people use) with a bad or not yet
// supported value is kInvalidArgument with the field in Status::param().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/request.h"

namespace bz::server {

// What values are checked against.
struct RequestLimits {
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  int32_t max_request_tokens = INT32_MAX;  // that the cache holds
};

inline constexpr size_t kMaxPrompts = 128;    // of one request
inline constexpr size_t kMaxAnswers = 1024;   // prompts times choices
inline constexpr size_t kMaxStops = 16;       // OpenAI allows 4
inline constexpr size_t kMaxStopBytes = 256;  // of one stop string
inline constexpr size_t kMaxUserBytes = 256;
inline constexpr size_t kMaxMessages = 4096;

// Text or token ids, one of them.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
  bool is_text = false;
};

struct ChatMessage {
  std::string role;
  std::string content;
};

struct GenerationRequest {
  bool chat = false;
  std::string model;                  // empty: whatever is served
  std::vector<Prompt> prompts;        // completions
  std::vector<ChatMessage> messages;  // chat
  bool add_generation_prompt = true;  // chat
  bool add_special_tokens = true;     // completions: begin with the model's beginning-of-sequence token, if it has one
  engine::SamplingParams sampling;    // its seed counts only if `has_seed`
  bool has_seed = false;
  std::optional<int32_t> max_tokens;            // absent: the endpoint's default
  std::string max_tokens_field = "max_tokens";  // the name it came under
  int32_t n = 1;                                // choices of each prompt in the answer
  int32_t best_of = 1;                          // choices made for each prompt, at least n; the likeliest are given
  int32_t priority = 0;
  std::string user;  // with the API key: whom the engine is fair to
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stops;
  bool echo = false;             // completions: the prompt comes back before the answer
  int32_t logprobs = -1;         // alternatives of each token; -1: no log probabilities
  int32_t prompt_logprobs = -1;  // likewise of the prompt's tokens, in a field of their own
  bool stream = false;
  bool include_usage = false;
};

Result<GenerationRequest> parse_completion_request(std::string_view body, const RequestLimits& limits);
Result<GenerationRequest> parse_chat_request(std::string_view body, const RequestLimits& limits);

struct TokenizeRequest {
  std::string model;
  std::string text;
  bool add_special_tokens = true;
};
Result<TokenizeRequest> parse_tokenize_request(std::string_view body);

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};
Result<DetokenizeRequest> parse_detokenize_request(std::string_view body, const RequestLimits& limits);

}  // namespace bz::server
