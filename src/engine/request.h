// Request and Output: what goes into the engine and what comes out. Token ids only; text is the caller's
// (text_stream.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace bz::engine {

using RequestId = StrongId<struct RequestTag, uint64_t>;

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0: off
  float min_p = 0.0f;        // [0, 1)
  uint64_t seed = 0;         // random numbers are keyed by (seed, output index)
};

struct Request {
  std::vector<int32_t> prompt;  // token ids, at least one
  SamplingParams sampling;
  int32_t max_tokens = 16;  // at least 1
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;  // besides the model's end tokens
};

enum class FinishReason { kStop, kLength, kCancelled, kError };
// OpenAI's words: "stop", "length"; "cancelled" and "error" for the rest.
std::string_view finish_reason_name(FinishReason reason);

// New tokens of one request, delivered at most once a step.
struct Output {
  RequestId id;
  std::vector<int32_t> tokens;
  int32_t num_cached_tokens = 0;         // of the prompt, taken from the prefix cache when it was first admitted
  std::optional<FinishReason> finished;  // set once, in the last Output; an end token is not among `tokens`
  std::string error;                     // why, when finished is kError
};

// Receives a request's outputs on the engine's thread. Must not block and must not call back into the engine.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void on_output(const Output& output) = 0;
};

}  // namespace bz::engine
