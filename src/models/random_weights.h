// A model of the shape that a Hugging Face config.json describes, with random bf16 weights: for measuring speed, which
// does not depend on what the weights are. (They are never zeros: zeros run faster.)
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "formats/gguf.h"

namespace bz::models {

// A GGUF file of that shape in memory, for nobody else to see: metadata, a vocabulary of bytes and fillers, tensors.
// Its tensor data are a hole, read as zeros and costing no memory, unless `fill`: then random weights.
// config.json's model_type must be llama; rope_scaling, which changes no shape, is left out.
Result<formats::GgufFile> random_llama(const std::string& config_path, bool fill);

// Calls put(offset, bytes) until `size` bytes of random bf16 numbers, uniform in (-0.05, 0.05), are given out.
void random_weights(size_t size, const std::function<void(size_t offset, std::span<const std::byte> bytes)>& put);

}  // namespace bz::models
