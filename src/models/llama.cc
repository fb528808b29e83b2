#include "models/llama.h"

#include <cmath>
#include <string>
#include <utility>

#include "models/llama_activations.h"
#include "models/llama_tensors.h"

namespace bz::models {
namespace {

using ops::TensorRef;
using ops::Weight;

struct LayerWeights {
  const float* attn_norm;  // [D]
  Weight q;                // [H*hd, D]
  Weight k;                // [Hkv*hd, D]
  Weight v;                // [Hkv*hd, D]
  Weight o;                // [D, H*hd]
  const float* ffn_norm;   // [D]
  Weight gate;             // [I, D]
  Weight up;               // [I, D]
  Weight down;             // [D, I]
};

bool fuses_qkv(const ops::OpTable& ops, const LayerWeights& w) {
  return ops.norm_qkv != nullptr && w.q.dtype == w.k.dtype && w.q.dtype == w.v.dtype;
}
bool fuses_gate_up(const ops::OpTable& ops, const LayerWeights& w) {
  return ops.norm_gate_up != nullptr && w.gate.dtype == w.up.dtype;
}

class Llama final : public Model {
 public:
  Llama(const ModelConfig& config, DType kv_dtype) : config_(config), kv_dtype_(kv_dtype) {}

  Status bind(const formats::GgufFile& file, const ops::OpTable& ops, const WeightStore* store);

  int32_t vocab_size() const override { return config_.vocab_size; }
  int32_t max_model_len() const override { return config_.context_length; }
  std::vector<kv::LayerSpec> cache_specs() const override { return llama_cache_specs(config_, kv_dtype_); }
  ops::KvLayer kv_layer(int32_t) const override {
    ops::KvLayer layer;
    layer.num_kv_heads = config_.num_kv_heads;
    layer.head_dim = config_.head_dim;
    layer.dtype = kv_dtype_;
    return layer;
  }
  Status reserve(device::Device& device, const ops::OpTable& ops, int32_t max_tokens, int32_t max_rows) override;
  void prepare_products(device::Stream& stream, const ops::OpTable& ops, std::span<const int32_t> step_sizes) override;
  void forward(const ForwardContext& ctx) override;
  int64_t weight_bytes() const override { return weight_bytes_; }

 private:
  const std::byte* address(const formats::GgufTensor& t) const {
    return store_ == nullptr ? t.data : store_->address(t.data);
  }
  Result<Weight> weight(const formats::GgufFile& file, const std::string& name, const ops::OpTable& ops);
  Result<const float*> vector(const formats::GgufFile& file, const std::string& name);

  void attention_block(const ForwardContext& ctx, const LayerWeights& w, int32_t layer);
  void ffn_block(const ForwardContext& ctx, const LayerWeights& w);
  void logits_block(const ForwardContext& ctx);
  // out (+)= x * weight^T for weights that share an input.
  void matmul(const ForwardContext& ctx, ops::ValidCount num_valid, TensorRef x, bool accumulate,
              std::initializer_list<std::pair<const Weight*, TensorRef>> parts);

  ModelConfig config_;
  DType kv_dtype_;
  const WeightStore* store_ = nullptr;
  Weight embedding_;  // [V, D]
  Weight output_;     // [V, D], the embedding itself when tied
  const float* output_norm_ = nullptr;
  std::vector<LayerWeights> layers_;
  int64_t weight_bytes_ = 0;
  LlamaActivations a_ = {};
};

Result<Weight> Llama::weight(const formats::GgufFile& file, const std::string& name, const ops::OpTable& ops) {
  BZ_ASSIGN(const formats::GgufTensor* t, file.get_tensor(name));
  if (!ops.supports_weight(*t->dtype)) {
    return invalid_argument("{}: tensor {}: type {} is not supported by the {} kernels yet", file.name(), name,
                            dtype_info(*t->dtype).name, ops.isa);
  }
  if (t->dims[0] % ops.weight_row_unit != 0) {
    return invalid_argument(
        "{}: tensor {}: rows of {} elements are not supported by the {} kernels, multiples of {} are; "
        "use --device cpu",
        file.name(), name, t->dims[0], ops.isa, ops.weight_row_unit);
  }
  Weight w{address(*t), *t->dtype, static_cast<int32_t>(t->dims[1]), static_cast<int32_t>(t->dims[0])};
  weight_bytes_ += row_bytes(w.dtype, w.k) * w.n;
  return w;
}

Result<const float*> Llama::vector(const formats::GgufFile& file, const std::string& name) {
  BZ_ASSIGN(const formats::GgufTensor* t, file.get_tensor(name));
  if (*t->dtype != DType::kF32) {
    return invalid_argument("{}: tensor {}: type {} of a norm weight is not supported; f32 is", file.name(), name,
                            dtype_info(*t->dtype).name);
  }
  weight_bytes_ += t->num_bytes;
  return reinterpret_cast<const float*>(address(*t));
}

Status Llama::bind(const formats::GgufFile& file, const ops::OpTable& ops, const WeightStore* store) {
  store_ = store;
  if (!ops.supports_heads(config_.num_heads, config_.num_kv_heads, config_.head_dim)) {
    return invalid_argument(
        "{}: {} query heads over {} KV heads of {} elements are not supported by the {} kernels yet", file.name(),
        config_.num_heads, config_.num_kv_heads, config_.head_dim, ops.isa);
  }
  BZ_ASSIGN(embedding_, weight(file, "token_embd.weight", ops));
  output_ = embedding_;
  if (!config_.tie_embeddings) {
    weight_bytes_ = 0;  // an untied input embedding is looked up, not read
    BZ_ASSIGN(output_, weight(file, "output.weight", ops));
  }
  BZ_ASSIGN(output_norm_, vector(file, "output_norm.weight"));
  for (int32_t i = 0; i < config_.num_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LayerWeights w{};
    BZ_ASSIGN(w.attn_norm, vector(file, prefix + "attn_norm.weight"));
    BZ_ASSIGN(w.q, weight(file, prefix + "attn_q.weight", ops));
    BZ_ASSIGN(w.k, weight(file, prefix + "attn_k.weight", ops));
    BZ_ASSIGN(w.v, weight(file, prefix + "attn_v.weight", ops));
    BZ_ASSIGN(w.o, weight(file, prefix + "attn_output.weight", ops));
    BZ_ASSIGN(w.ffn_norm, vector(file, prefix + "ffn_norm.weight"));
    BZ_ASSIGN(w.gate, weight(file, prefix + "ffn_gate.weight", ops));
    BZ_ASSIGN(w.up, weight(file, prefix + "ffn_up.weight", ops));
    BZ_ASSIGN(w.down, weight(file, prefix + "ffn_down.weight", ops));
    layers_.push_back(w);
  }
  return ok_status();
}

Status Llama::reserve(device::Device& device, const ops::OpTable& ops, int32_t max_tokens, int32_t max_rows) {
  BZ_ASSIGN(a_, make_llama_activations(config_, device, ops, max_tokens, max_rows));
  return ok_status();
}

// What attention_block, ffn_block and logits_block will multiply by.
void Llama::prepare_products(device::Stream& stream, const ops::OpTable& ops, std::span<const int32_t> step_sizes) {
  using Op = ops::ProductsParams::Op;
  if (ops.prepare_products == nullptr) return;
  for (const int32_t tokens : step_sizes) {
    const auto prepare = [&](Op op, const auto&... weights) {
      ops.prepare_products(stream, {op, {weights...}, sizeof...(weights), tokens, a_.scratch, a_.scratch_bytes});
    };
    for (const LayerWeights& w : layers_) {
      prepare(fuses_qkv(ops, w) ? Op::kNormQkv : Op::kMatmul, w.q, w.k, w.v);
      prepare(Op::kMatmul, w.o);
      prepare(fuses_gate_up(ops, w) ? Op::kNormGateUp : Op::kMatmul, w.gate, w.up);
      prepare(Op::kMatmul, w.down);
    }
    prepare(Op::kMatmul, output_);
  }
}

void Llama::matmul(const ForwardContext& ctx, ops::ValidCount num_valid, TensorRef x, bool accumulate,
                   std::initializer_list<std::pair<const Weight*, TensorRef>> parts) {
  ops::MatmulParams p{};
  p.x = x;
  for (const auto& [w, out] : parts) p.parts[p.num_parts++] = {*w, out};
  p.accumulate = accumulate ? 1 : 0;
  p.scratch = a_.scratch;
  p.scratch_bytes = a_.scratch_bytes;
  p.num_valid = num_valid;
  ctx.ops.matmul(ctx.stream, p);
}

void Llama::attention_block(const ForwardContext& ctx, const LayerWeights& w, int32_t layer) {
  const int32_t t = ctx.view.padded_tokens;
  const ops::ValidCount valid = ctx.view.num_valid_tokens;
  const int32_t q_dim = config_.num_heads * config_.head_dim;
  const int32_t kv_dim = config_.num_kv_heads * config_.head_dim;
  const TensorRef x = ops::tensor_f32(a_.x, t, config_.hidden_size);
  const TensorRef h = ops::tensor_f32(a_.h, t, config_.hidden_size);
  const TensorRef q = ops::tensor_f32(a_.q, t, q_dim);
  const TensorRef k = ops::tensor_f32(a_.k, t, kv_dim);
  const TensorRef v = ops::tensor_f32(a_.v, t, kv_dim);
  const TensorRef attn = ops::tensor_f32(a_.attn, t, q_dim);
  const TensorRef cos_sin = ops::tensor_f32(a_.cos_sin, t, config_.head_dim);
  const int32_t group = ctx.kv_groups[layer];

  const kv::SlotId* slots = ctx.view.groups[group].slots;
  if (fuses_qkv(ctx.ops, w)) {
    ctx.ops.norm_qkv(ctx.stream, {x, w.attn_norm, config_.rms_norm_eps, w.q, w.k, w.v, q, cos_sin, config_.rope.style,
                                  slots, ctx.kv_layers[layer], valid, a_.scratch, a_.scratch_bytes});
  } else {
    ctx.ops.rms_norm(ctx.stream, {x, w.attn_norm, h, config_.rms_norm_eps, valid});
    matmul(ctx, valid, h, false, {{&w.q, q}, {&w.k, k}, {&w.v, v}});
    ctx.ops.rope_store(ctx.stream, {q, k, v, cos_sin, config_.rope.style, slots, ctx.kv_layers[layer], valid});
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  ctx.attention({q, attn, config_.num_heads, scale, group, ctx.kv_layers[layer], ctx.view});
  matmul(ctx, valid, attn, true, {{&w.o, x}});
}

void Llama::ffn_block(const ForwardContext& ctx, const LayerWeights& w) {
  const int32_t t = ctx.view.padded_tokens;
  const ops::ValidCount valid = ctx.view.num_valid_tokens;
  const TensorRef x = ops::tensor_f32(a_.x, t, config_.hidden_size);
  const TensorRef h = ops::tensor_f32(a_.h, t, config_.hidden_size);
  const TensorRef gate = ops::tensor_f32(a_.gate, t, config_.intermediate_size);
  const TensorRef up = ops::tensor_f32(a_.up, t, config_.intermediate_size);

  if (fuses_gate_up(ctx.ops, w)) {
    ctx.ops.norm_gate_up(
        ctx.stream, {x, w.ffn_norm, config_.rms_norm_eps, w.gate, w.up, gate, valid, a_.scratch, a_.scratch_bytes});
  } else {
    ctx.ops.rms_norm(ctx.stream, {x, w.ffn_norm, h, config_.rms_norm_eps, valid});
    matmul(ctx, valid, h, false, {{&w.gate, gate}, {&w.up, up}});
    ctx.ops.silu_mul(ctx.stream, {gate, up, gate, valid});
  }
  matmul(ctx, valid, gate, true, {{&w.down, x}});
}

void Llama::logits_block(const ForwardContext& ctx) {
  const TensorRef x = ops::tensor_f32(a_.x, ctx.view.padded_tokens, config_.hidden_size);
  const ops::NormLogitsParams fused{x,          ctx.view.logits_token, output_norm_, config_.rms_norm_eps, output_,
                                    ctx.logits, ctx.num_valid_logits};
  if (ctx.ops.norm_logits != nullptr && ctx.ops.supports_norm_logits(fused)) {
    ctx.ops.norm_logits(ctx.stream, fused);
    return;
  }
  const TensorRef last = ops::tensor_f32(a_.last, ctx.view.padded_logits, config_.hidden_size);
  ctx.ops.gather_rows(ctx.stream, {x, ctx.view.logits_token, last});
  ctx.ops.rms_norm(ctx.stream, {last, output_norm_, last, config_.rms_norm_eps, ctx.num_valid_logits});
  matmul(ctx, ctx.num_valid_logits, last, false, {{&output_, ctx.logits}});
}

void Llama::forward(const ForwardContext& ctx) {
  const int32_t t = ctx.view.padded_tokens;
  const ops::ValidCount valid = ctx.view.num_valid_tokens;
  ctx.stream.set_layer(-1);
  ctx.ops.embed(ctx.stream, {ctx.view.token_ids, embedding_, ops::tensor_f32(a_.x, t, config_.hidden_size), valid});
  ctx.ops.rope_table(ctx.stream,
                     {ctx.view.positions, a_.inv_freq, ops::tensor_f32(a_.cos_sin, t, config_.head_dim), valid});
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    ctx.stream.set_layer(layer);
    attention_block(ctx, layers_[static_cast<size_t>(layer)], layer);
    ffn_block(ctx, layers_[static_cast<size_t>(layer)]);
  }
  ctx.stream.set_layer(-1);
  logits_block(ctx);
}

}  // namespace

std::vector<kv::LayerSpec> llama_cache_specs(const ModelConfig& config, DType kv_dtype) {
  std::vector<kv::LayerSpec> specs;
  specs.reserve(static_cast<size_t>(config.num_layers));
  for (int32_t i = 0; i < config.num_layers; ++i) {
    specs.push_back(kv::attention_layer(i, config.num_kv_heads, config.head_dim, kv_dtype));
  }
  return specs;
}

Result<std::unique_ptr<Model>> make_llama(const formats::GgufFile& file, const ModelConfig& config,
                                          const ops::OpTable& ops, DType kv_dtype, const WeightStore* store) {
  auto model = std::make_unique<Llama>(config, kv_dtype);
  BZ_TRY(model->bind(file, ops, store));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace bz::models
