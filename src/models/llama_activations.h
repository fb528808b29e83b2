// The memory of one step's forward of a Llama model.
#pragma once

#include "device/device.h"
#include "models/model_config.h"
#include "ops/op_table.h"

namespace bz::models {

// For the largest step; a smaller one uses the front of each.
struct LlamaActivations {
  device::Buffer memory;
  float* x = nullptr;        // [T, D] residual stream
  float* h = nullptr;        // [T, D] normed
  float* q = nullptr;        // [T, H*hd]
  float* k = nullptr;        // [T, Hkv*hd]
  float* v = nullptr;        // [T, Hkv*hd]
  float* attn = nullptr;     // [T, H*hd]
  float* gate = nullptr;     // [T, I]
  float* up = nullptr;       // [T, I]
  float* cos_sin = nullptr;  // [T, hd]
  float* last = nullptr;     // [max(T, R), D] rows whose logits are wanted
  void* scratch = nullptr;   // of every matmul and of its fused forms; none where the backend needs none
  size_t scratch_bytes = 0;
  double* inv_freq = nullptr;  // [hd / 2]
};

Result<LlamaActivations> make_llama_activations(const ModelConfig& config, device::Device& device,
                                                const ops::OpTable& ops, int32_t max_tokens, int32_t max_rows);

}  // namespace bz::models
