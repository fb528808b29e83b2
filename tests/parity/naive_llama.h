// The Llama forward once more, in float64 and in the plainest way: every position from scratch, no cache, no batch.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/gguf.h"
#include "models/model_config.h"

namespace bz::test {

// Logits [ids, vocab] of a file whose tensors are all f32.
std::vector<std::vector<double>> naive_llama(const formats::GgufFile& file, const models::ModelConfig& config,
                                             const std::vector<int32_t>& ids);

}  // namespace bz::test
