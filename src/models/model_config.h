// ModelConfig: the numbers that define a model of the Llama-shaped family, read from a file and checked.
//
// A config that exists is consistent: every count is positive and sane, the counts agree with each other, with the
// vocabulary and with the shape and type of every tensor, and no tensor is missing or left over. Code that builds the
// model need not ask again. A refusal is one line: file, key or tensor, value, reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"
#include "ops/params.h"

namespace bz::models {

// Rotary positions (RoPE, Su et al. 2021).
struct RopeConfig {
  double theta = 10000.0;
  int32_t dims = 0;  // rotated elements per head, even; equals head_dim
  ops::RopeStyle style = ops::RopeStyle::kAdjacentPairs;
  double linear_factor = 1.0;  // every frequency is divided by it; 1: off
  // One divisor per pair of elements, [dims / 2]; empty: none. Llama 3.1's scaling reaches a GGUF in this form
  // (tensor rope_freqs.weight).
  std::vector<float> freq_factors;
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name; may be empty
  std::string basename;      // general.basename; may be empty
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;     // of queries
  int32_t num_kv_heads = 0;  // divides num_heads
  int32_t head_dim = 0;
  int32_t intermediate_size = 0;
  int32_t context_length = 0;
  float rms_norm_eps = 0.0f;
  RopeConfig rope;
  bool tie_embeddings = false;  // no output.weight: the logits use token_embd.weight
};

// REQUIRES: nothing of the file; everything is checked.
Result<ModelConfig> model_config_from_gguf(const formats::GgufFile& file);

// Radians per position of each rotated pair, scaling applied: theta^(-2i/dims) / linear_factor / freq_factors[i].
std::vector<double> rope_inv_freq(const RopeConfig& rope);  // [dims / 2]

// Any architecture's config for a memory plan or the like could join here; kept to what is supported.
inline constexpr const char* kSupportedArchitectures = "llama";

}  // namespace bz::models
