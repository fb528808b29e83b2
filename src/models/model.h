// Model: a family's forward pass as a sequence of ops. forward() only enqueues: it runs the same whether the ops are
// recorded into a graph, replayed later, or run one by one, and whether the step is real, padded or a dummy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "kv/spec.h"
#include "ops/op_table.h"

namespace bz::models {

// Takes attention out of a forward that is recorded in pieces (GraphMode::kPiecewise).
class AttentionOutside {
 public:
  virtual ~AttentionOutside() = default;
  virtual void attention(const ops::AttentionParams& params) = 0;
};

// What a step's forward works on. Addresses are fixed for a graph key.
struct ForwardContext {
  device::Stream& stream;
  const ops::OpTable& ops;
  const ops::StepView& view;
  const ops::KvLayer* kv_layers;  // [num layers with a cache]
  const int32_t* kv_groups;       // [num layers with a cache] group of each, an index into view.groups
  ops::ValidCount num_valid_logits;
  ops::TensorRef logits;  // out: f32 [L, V]
  AttentionOutside* outside = nullptr;

  // The one way a model asks for attention.
  void attention(const ops::AttentionParams& params) const {
    if (outside != nullptr) return outside->attention(params);
    ops.attention(stream, params);
  }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t max_model_len() const = 0;  // the context the model was made for
  // The cache each layer needs, in layer order.
  virtual std::vector<kv::LayerSpec> cache_specs() const = 0;
  // How a layer's K and V entries are shaped; base and pages are the runner's to fill in.
  virtual ops::KvLayer kv_layer(int32_t layer) const = 0;
  // Allocates activations for steps of up to max_tokens tokens and max_rows rows. Called once, before forward.
  virtual Status reserve(device::Device& device, const ops::OpTable& ops, int32_t max_tokens, int32_t max_rows) = 0;
  // Has the ops choose and load what its products need, for steps of these numbers of tokens or logits rows. Called
  // once, after reserve, where nothing is captured.
  virtual void prepare_products(device::Stream&, const ops::OpTable&, std::span<const int32_t> /*step_sizes*/) {}
  virtual void forward(const ForwardContext& ctx) = 0;
  // Bytes of weights read for one token.
  virtual int64_t weight_bytes() const = 0;
};

}  // namespace bz::models
