// The Llama family (Llama 2/3, SmolLM2): RMSNorm, rotary positions, grouped-query attention, SwiGLU.
// Forward pass: Touvron et al. 2023 (arXiv:2302.13971), grouped queries as in arXiv:2305.13245.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/gguf.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/weight_store.h"

namespace bz::models {

// Binds the weights of a checked config to where they lie: in the store, or without one in the file's bytes. Both must
// outlive the model.
// Fails when a weight's type is one that the ops cannot compute with.
Result<std::unique_ptr<Model>> make_llama(const formats::GgufFile& file, const ModelConfig& config,
                                          const ops::OpTable& ops, DType kv_dtype, const WeightStore* store = nullptr);

// The cache layers of such a model, without loading it (blockzero plan).
std::vector<kv::LayerSpec> llama_cache_specs(const ModelConfig& config, DType kv_dtype);

}  // namespace bz::models
