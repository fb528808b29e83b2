// What the layers of a model cache, from its config.json alone: for `blockzero plan`, and for the families to come.
// One function per family; sizes are those of the released checkpoints' kernels (kv/spec.h names the formats).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/spec.h"
#include "models/hf_config.h"

namespace bz::models {

struct CacheOptions {
  DType kv_dtype = DType::kBF16;  // of plain attention; latent caches have formats of their own
  int32_t num_spec = 0;           // tokens speculated per step: rings grow with it
};

// The longest context the model was made for; 0: the config does not say.
Result<int32_t> max_context(const HfConfig& config);

// In the order of the layers; several specs for a layer with several caches.
Result<std::vector<kv::LayerSpec>> cache_specs(const HfConfig& config, const CacheOptions& options);

// "deepseek_v3, deepseek_v32, ...": the model_types that cache_specs() knows.
std::string known_cache_families();

}  // namespace bz::models
