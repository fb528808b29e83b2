// Request and Output: what goes into the engine and what comes out. Token ids only; text is the caller's
// (text_stream.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace bz::engine {

using RequestId = StrongId<struct RequestTag, uint64_t>;

inline constexpr int32_t kMaxChoices = 128;       // answers of a request
inline constexpr int32_t kMaxPriority = 100;      // from -100, the most urgent
inline constexpr size_t kMaxLogitBias = 300;      // entries of a request
inline constexpr size_t kMaxStopTokenIds = 64;    // of a request
inline constexpr int32_t kMaxTopLogprobs = 20;    // alternatives of a token
inline constexpr float kMaxLogitBiasValue = 100;  // OpenAI's range is [-100, 100]

// Added to a token's logit.
struct LogitBias {
  int32_t token = 0;
  float bias = 0.0f;
};

// What each does to the logits, and in what order: ops::AdjustLogitsParams.
struct SamplingParams {
  float temperature = 1.0f;           // 0: greedy
  float top_p = 1.0f;                 // (0, 1]
  int32_t top_k = 0;                  // 0: off
  float min_p = 0.0f;                 // [0, 1)
  uint64_t seed = 0;                  // random numbers are keyed by (seed, output index)
  float repetition_penalty = 1.0f;    // above 0; 1: off
  float presence_penalty = 0.0f;      // [-2, 2]
  float frequency_penalty = 0.0f;     // [-2, 2]
  std::vector<LogitBias> logit_bias;  // each token once
};

struct Request {
  std::vector<int32_t> prompt;  // token ids, at least one
  SamplingParams sampling;
  // Answers to one prompt, whose prompt is computed once (KV-6). They have consecutive ids; the n-th one's seed is
  // sampling.seed + n.
  int32_t num_choices = 1;
  int32_t priority = 0;     // lower: earlier (engine/wait_queue.h)
  std::string client;       // who shares the engine fairly with whom; empty: one client like any other
  int32_t max_tokens = 16;  // at least 1
  int32_t min_tokens = 0;   // no end token or stop token before so many outputs; at most max_tokens
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;  // besides the model's end tokens
  int32_t logprobs = -1;                // of each output token, with so many alternatives; -1: none
  int32_t prompt_logprobs =
      -1;  // likewise of the prompt's tokens: then its prefix is computed, not taken from the cache
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };
// OpenAI's words: "stop", "length"; "cancelled" and "error" for the rest.
std::string_view finish_reason_name(FinishReason reason);

// A token's log probability and its alternatives', under the model's unmodified logits. Natural logarithms.
struct TokenLogprobs {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;     // 1: the most likely token
  int32_t num_top = 0;  // the most likely tokens, best first
  std::array<int32_t, kMaxTopLogprobs> top_tokens{};
  std::array<float, kMaxTopLogprobs> top_logprobs{};
};

// New tokens of one request, delivered at most once a step.
struct Output {
  RequestId id;
  int32_t choice = 0;  // 0 to num_choices - 1
  std::vector<int32_t> tokens;
  std::vector<float> token_logprobs;           // one a token
  std::vector<TokenLogprobs> logprobs;         // one a token, if Request::logprobs asks
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's second token on, in order, before the first output
  int32_t num_cached_tokens = 0;               // of the prompt, taken from the prefix cache when it was first admitted
  std::optional<FinishReason> finished;        // set once, in the last Output; an end token is not among `tokens`
  std::string error;                           // why, when finished is kError
};

// Receives a request's outputs on the engine's thread. Must not block and must not call back into the engine.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_output(const Output& output) = 0;
};

}  // namespace bz::engine
