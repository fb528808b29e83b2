// The tensors of a Llama-shaped GGUF: their names and the shapes that a config implies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"

namespace bz::models {

struct ModelConfig;

// One tensor that the model needs. A matrix [rows, cols] maps cols inputs to rows outputs; a vector has rows 1.
struct TensorSpec {
  std::string name;
  int64_t cols = 0;  // GGUF dims[0]
  int64_t rows = 1;  // GGUF dims[1]
  bool is_vector = false;
};

// Every tensor of the model, in the order of the forward pass.
std::vector<TensorSpec> llama_tensor_specs(const ModelConfig& config);

// Each tensor is there with its shape and a type to compute with, and none is there that would go unused.
Status check_llama_tensors(const formats::GgufFile& file, const ModelConfig& config);

}  // namespace bz::models
