#include "models/model_config.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "models/llama_tensors.h"

namespace bz::models {
namespace {

using formats::GgufFile;

// Past these a value is taken for damage, not for a model. All are far above any model known.
constexpr uint64_t kMaxVocab = 1u << 22;
constexpr uint64_t kMaxHidden = 1u << 18;
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 1024;
constexpr uint64_t kMaxIntermediate = 1u << 21;
constexpr uint64_t kMaxContext = std::numeric_limits<int32_t>::max();

// Reads the keys of one architecture ("llama.block_count") into a ModelConfig.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, ModelConfig& config) : file_(file), config_(config) {}

  Status read() {
    BZ_TRY(refuse_other_shapes());
    BZ_TRY(count("embedding_length", kMaxHidden, config_.hidden_size));
    BZ_TRY(count("block_count", kMaxLayers, config_.num_layers));
    BZ_TRY(count("feed_forward_length", kMaxIntermediate, config_.intermediate_size));
    BZ_TRY(count("context_length", kMaxContext, config_.context_length));
    BZ_TRY(read_heads());
    BZ_TRY(read_vocab());
    BZ_TRY(read_eps());
    return read_rope();
  }

 private:
  std::string key(std::string_view suffix) const { return config_.architecture + "." + std::string(suffix); }

  template <class T>
  Status refuse(const std::string& full_key, T value, std::string_view reason) const {
    return invalid_argument("{}: key '{}' is {}: {}", file_.name(), full_key, value, reason);
  }

  // A count from 1 to max.
  Status count(std::string_view suffix, uint64_t max, int32_t& out) const {
    const std::string k = key(suffix);
    BZ_ASSIGN(const uint64_t value, file_.get_uint(k));
    if (value == 0 || value > max) return refuse(k, value, fmt::format("expected 1 to {}", max));
    out = static_cast<int32_t>(value);
    return ok_status();
  }
  Status count_or(std::string_view suffix, uint64_t max, int32_t fallback, int32_t& out) const {
    out = fallback;
    return file_.has(key(suffix)) ? count(suffix, max, out) : ok_status();
  }

  // Keys that change the computation in ways that are not built yet: ignoring them would give wrong answers.
  Status refuse_other_shapes() const {
    BZ_ASSIGN(const uint64_t experts, file_.get_uint(key("expert_count"), 0));
    if (experts != 0) return refuse(key("expert_count"), experts, "mixtures of experts are not supported yet");
    BZ_ASSIGN(const uint64_t window, file_.get_uint(key("attention.sliding_window"), 0));
    if (window != 0) return refuse(key("attention.sliding_window"), window, "windows are not supported yet");
    for (const char* suffix : {"logit_scale", "attention.scale", "residual_scale", "embedding_scale"}) {
      BZ_ASSIGN(const double scale, file_.get_float(key(suffix), 0.0));
      if (scale != 0.0) return refuse(key(suffix), scale, "scaled variants are not supported yet");
    }
    return ok_status();
  }

  Status read_heads() {
    BZ_TRY(count("attention.head_count", kMaxHeads, config_.num_heads));
    BZ_TRY(count_or("attention.head_count_kv", kMaxHeads, config_.num_heads, config_.num_kv_heads));
    if (config_.num_heads % config_.num_kv_heads != 0) {
      return refuse(key("attention.head_count_kv"), config_.num_kv_heads,
                    fmt::format("does not divide the {} query heads", config_.num_heads));
    }
    const bool explicit_dim = file_.has(key("attention.key_length"));
    if (!explicit_dim && config_.hidden_size % config_.num_heads != 0) {
      return refuse(key("attention.head_count"), config_.num_heads,
                    fmt::format("does not divide the embedding length {}", config_.hidden_size));
    }
    const int32_t implied = config_.hidden_size / config_.num_heads;
    BZ_TRY(count_or("attention.key_length", kMaxHeadDim, implied, config_.head_dim));
    const std::string dim_key = explicit_dim ? key("attention.key_length") : key("embedding_length");
    if (config_.head_dim <= 0 || static_cast<uint64_t>(config_.head_dim) > kMaxHeadDim || config_.head_dim % 2 != 0) {
      return refuse(dim_key, explicit_dim ? config_.head_dim : config_.hidden_size,
                    fmt::format("gives heads of {} elements, expected an even number from 2 to {}", config_.head_dim,
                                kMaxHeadDim));
    }
    int32_t value_dim = 0;
    BZ_TRY(count_or("attention.value_length", kMaxHeadDim, config_.head_dim, value_dim));
    if (value_dim != config_.head_dim) {
      return refuse(key("attention.value_length"), value_dim,
                    fmt::format("differs from the key length {}, which is not supported yet", config_.head_dim));
    }
    return ok_status();
  }

  Status read_vocab() {
    BZ_ASSIGN(const formats::GgufTensor* embedding, file_.get_tensor("token_embd.weight"));
    const auto rows = static_cast<uint64_t>(embedding->dims[1]);
    BZ_ASSIGN(const uint64_t vocab, file_.get_uint(key("vocab_size"), rows));
    if (vocab == 0 || vocab > kMaxVocab) {
      return refuse(key("vocab_size"), vocab, fmt::format("expected 1 to {}", kMaxVocab));
    }
    if (vocab != rows) {
      return refuse(key("vocab_size"), vocab, fmt::format("but tensor 'token_embd.weight' has {} rows", rows));
    }
    if (const formats::GgufMetadata* tokens = file_.find("tokenizer.ggml.tokens")) {
      const auto* array = std::get_if<formats::GgufArray>(&tokens->value.data);
      if (array == nullptr) return refuse("tokenizer.ggml.tokens", "no array", "expected an array of strings");
      if (array->count != vocab) {
        return invalid_argument("{}: key 'tokenizer.ggml.tokens' has {} tokens, but the embedding has {} rows",
                                file_.name(), array->count, vocab);
      }
    }
    for (const char* id_key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                               "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      BZ_ASSIGN(const uint64_t id, file_.get_uint(id_key, 0));
      if (id >= vocab) return refuse(id_key, id, fmt::format("the vocabulary has {} tokens", vocab));
    }
    config_.vocab_size = static_cast<int32_t>(vocab);
    return ok_status();
  }

  Status read_eps() {
    const std::string k = key("attention.layer_norm_rms_epsilon");
    BZ_ASSIGN(const double eps, file_.get_float(k));
    if (!(eps > 0.0 && eps < 1.0)) return refuse(k, eps, "expected a number between 0 and 1");
    config_.rms_norm_eps = static_cast<float>(eps);
    return ok_status();
  }

  Status read_rope() {
    RopeConfig& rope = config_.rope;
    const std::string theta_key = key("rope.freq_base");
    BZ_ASSIGN(rope.theta, file_.get_float(theta_key, 10000.0));
    if (!(rope.theta >= 1.0 && rope.theta <= 1e12)) return refuse(theta_key, rope.theta, "expected 1 to 1e12");
    BZ_TRY(count_or("rope.dimension_count", kMaxHeadDim, config_.head_dim, rope.dims));
    if (rope.dims != config_.head_dim) {
      return refuse(
          key("rope.dimension_count"), rope.dims,
          fmt::format("differs from the head dimension {}; partial rotation is not supported yet", config_.head_dim));
    }
    BZ_TRY(read_rope_scaling());
    return read_freq_factors();
  }

  Status read_rope_scaling() {
    const std::string type_key = key("rope.scaling.type");
    const std::string factor_key = key("rope.scaling.factor");
    // The older spelling of linear scaling.
    const std::string old_key = key("rope.scale_linear");
    BZ_ASSIGN(const std::string_view type, file_.get_string(type_key, file_.has(old_key) ? "linear" : "none"));
    if (type != "none" && type != "linear") {
      return refuse(type_key, "'" + formats::printable(type) + "'", "not supported yet (supported: none, linear)");
    }
    if (type == "none") return ok_status();
    const std::string& used_key = file_.has(factor_key) ? factor_key : old_key;
    BZ_ASSIGN(const double factor, file_.get_float(used_key));
    if (!(factor >= 1.0 && factor <= 1e6)) return refuse(used_key, factor, "expected 1 to 1e6");
    config_.rope.linear_factor = factor;
    return ok_status();
  }

  Status read_freq_factors() {
    const formats::GgufTensor* tensor = file_.find_tensor("rope_freqs.weight");
    if (tensor == nullptr) return ok_status();
    const int64_t pairs = config_.rope.dims / 2;
    if (tensor->dtype != DType::kF32 || tensor->num_elements() != pairs || tensor->dims[0] != pairs) {
      return invalid_argument("{}: tensor 'rope_freqs.weight' is no vector of {} f32 values", file_.name(), pairs);
    }
    config_.rope.freq_factors.resize(static_cast<size_t>(pairs));
    std::memcpy(config_.rope.freq_factors.data(), tensor->data, static_cast<size_t>(tensor->num_bytes));
    for (size_t i = 0; i < config_.rope.freq_factors.size(); ++i) {
      const float factor = config_.rope.freq_factors[i];
      if (!(factor > 0.0f && factor <= 1e6f)) {
        return invalid_argument("{}: tensor 'rope_freqs.weight' holds {} at index {}, expected 0 to 1e6", file_.name(),
                                factor, i);
      }
    }
    return ok_status();
  }

  const GgufFile& file_;
  ModelConfig& config_;
};

}  // namespace

Result<ModelConfig> model_config_from_gguf(const GgufFile& file) {
  ModelConfig config;
  BZ_ASSIGN(const std::string_view architecture, file.get_string("general.architecture"));
  if (architecture != "llama") {
    return invalid_argument("{}: architecture '{}' is not supported yet (supported: {})", file.name(),
                            formats::printable(architecture), kSupportedArchitectures);
  }
  config.architecture = architecture;
  BZ_ASSIGN(const std::string_view name, file.get_string("general.name", ""));
  BZ_ASSIGN(const std::string_view basename, file.get_string("general.basename", ""));
  config.name = name;
  config.basename = basename;
  BZ_TRY(ConfigReader(file, config).read());
  config.tie_embeddings = file.find_tensor("output.weight") == nullptr;
  BZ_TRY(check_llama_tensors(file, config));
  return config;
}

std::vector<double> rope_inv_freq(const RopeConfig& rope) {
  std::vector<double> inv_freq(static_cast<size_t>(rope.dims / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.dims) / rope.linear_factor;
    if (!rope.freq_factors.empty()) inv_freq[i] /= static_cast<double>(rope.freq_factors[i]);
  }
  return inv_freq;
}

}  // namespace bz::models
