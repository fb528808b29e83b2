#include "models/llama_tensors.h"

#include <string_view>
#include <unordered_set>

#include "models/model_config.h"

namespace bz::models {
namespace {
bool is_float_type(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }
bool is_weight_type(DType dtype) { return dtype != DType::kI32 && dtype != DType::kI8; }

Status check_tensor(const formats::GgufFile& file, const TensorSpec& spec) {
  BZ_ASSIGN(const formats::GgufTensor* tensor, file.get_tensor(spec.name));
  const bool shape_ok =
      tensor->dims[0] == spec.cols && tensor->dims[1] == spec.rows && tensor->dims[2] == 1 && tensor->dims[3] == 1;
  if (!shape_ok) {
    return invalid_argument(
        "{}: tensor '{}' has shape [{}, {}, {}, {}], the metadata imply [{}, {}]; the file is corrupt", file.name(),
        spec.name, tensor->dims[0], tensor->dims[1], tensor->dims[2], tensor->dims[3], spec.cols, spec.rows);
  }
  const DType dtype = *tensor->dtype;
  if (!(spec.is_vector ? is_float_type(dtype) : is_weight_type(dtype))) {
    return invalid_argument("{}: tensor '{}' has type {}, expected {}", file.name(), spec.name, dtype_info(dtype).name,
                            spec.is_vector ? "f32, f16 or bf16" : "a float or quantised type");
  }
  return ok_status();
}
}  // namespace

std::vector<TensorSpec> llama_tensor_specs(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_size = int64_t{config.num_kv_heads} * config.head_dim;
  const int64_t inner = config.intermediate_size;
  std::vector<TensorSpec> specs;
  specs.push_back({"token_embd.weight", hidden, config.vocab_size});
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    specs.push_back({prefix + "attn_norm.weight", hidden, 1, true});
    specs.push_back({prefix + "attn_q.weight", hidden, q_size});
    specs.push_back({prefix + "attn_k.weight", hidden, kv_size});
    specs.push_back({prefix + "attn_v.weight", hidden, kv_size});
    specs.push_back({prefix + "attn_output.weight", q_size, hidden});
    specs.push_back({prefix + "ffn_norm.weight", hidden, 1, true});
    specs.push_back({prefix + "ffn_gate.weight", hidden, inner});
    specs.push_back({prefix + "ffn_up.weight", hidden, inner});
    specs.push_back({prefix + "ffn_down.weight", inner, hidden});
  }
  specs.push_back({"output_norm.weight", hidden, 1, true});
  if (!config.tie_embeddings) specs.push_back({"output.weight", hidden, config.vocab_size});
  return specs;
}

Status check_llama_tensors(const formats::GgufFile& file, const ModelConfig& config) {
  // rope_freqs.weight is checked where the config is read.
  std::unordered_set<std::string> used = {"rope_freqs.weight"};
  for (TensorSpec& spec : llama_tensor_specs(config)) {
    BZ_TRY(check_tensor(file, spec));
    used.insert(std::move(spec.name));
  }
  for (const formats::GgufTensor& tensor : file.tensors()) {
    if (used.contains(std::string(tensor.name))) continue;
    // A bias, an adapter, an extra layer: leaving it out would give wrong answers silently.
    return invalid_argument("{}: tensor '{}' is not part of a supported {} model; use a file without it", file.name(),
                            formats::printable(tensor.name), config.architecture);
  }
  return ok_status();
}

}  // namespace bz::models
