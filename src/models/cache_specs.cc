#include "models/cache_specs.h"

#include <algorithm>
#include <functional>
#include <map>

namespace bz::models {
namespace {

using kv::LatentFormat;
using kv::LayerSpec;

constexpr int64_t kF32Bytes = 4, kBF16Bytes = 2;

// Reads one family's config and appends its layers' specs.
class Reader {
 public:
  Reader(const HfConfig& config, const CacheOptions& options) : c_(config), options_(options) {}

  Status begin() {
    BZ_ASSIGN(num_layers_, c_.count("num_hidden_layers"));
    if (num_layers_ > 4096) return c_.refuse("num_hidden_layers", "{} layers", num_layers_);
    return ok_status();
  }
  std::vector<LayerSpec> take() { return std::move(specs_); }

  // Llama, Qwen3, Mistral: every layer sees everything.
  Status full_attention() {
    BZ_ASSIGN(const LayerSpec attention, attention_spec());
    for (int32_t i = 0; i < num_layers_; ++i) add(attention, i);
    return ok_status();
  }

  // Most layers see a window; layer_types says which, or every sliding_window_pattern-th one does not.
  Status gemma3() {
    BZ_ASSIGN(const LayerSpec attention, attention_spec());
    BZ_ASSIGN(const int32_t window, c_.count("sliding_window", HfConfig::kMaxTokens));
    BZ_ASSIGN(const int32_t pattern, c_.count_or("sliding_window_pattern", 6));
    BZ_ASSIGN(const auto types, layer_types([&](int32_t i) { return (i + 1) % pattern != 0 ? "sliding" : "full"; }));
    for (int32_t i = 0; i < num_layers_; ++i)
      add(has_word(types[index(i)], "sliding") ? windowed(attention, window) : attention, i);
    return ok_status();
  }

  Status deepseek_v3() { return latent_layers(false); }
  // Sparse attention: fp8 latent entries, and an index key a token.
  Status deepseek_v32() { return latent_layers(true); }

  // All layers keep a window; those with a ratio compressed entries too, those of ratio 4 (CSA) index keys and an
  // overlapping compressor, the others (HCA) a compressor without overlap.
  Status deepseek_v4() {
    BZ_ASSIGN(const std::vector<int32_t> ratios, ratios_of_layers());
    BZ_ASSIGN(const int32_t window, c_.count("sliding_window", HfConfig::kMaxTokens));
    BZ_ASSIGN(const int32_t dim, c_.count("head_dim"));
    BZ_ASSIGN(const int32_t index_dim, c_.count("index_head_dim"));
    BZ_TRY(require("head_dim", dim, 512));
    BZ_TRY(require("index_head_dim", index_dim, 128));
    const LayerSpec entry = latent_layer(0, LatentFormat::kFp8V4);
    for (int32_t i = 0; i < num_layers_; ++i) {
      add(windowed(entry, window), i);
      const int32_t ratio = ratios[index(i)];
      if (ratio == 0) continue;
      const bool overlap = ratio == 4;
      const int32_t capacity = kv::compressor_ring_v4(ratio, overlap, options_.num_spec);
      // A row: values and scores in f32, of two windows where they overlap; the index's own beside it.
      const int64_t row = (overlap ? 2 : 1) * 2 * kF32Bytes * dim, index_row = 2 * 2 * kF32Bytes * index_dim;
      add(compressed(entry, ratio), i);
      if (overlap) add(compressed(latent_layer(0, LatentFormat::kIndex), ratio), i);
      add(kv::ring_layer(0, ratio, capacity, {row, overlap ? index_row : 0}, overlap), i);
    }
    return ok_status();
  }

  // All layers keep a window; kv sources also compressed entries and index keys, which the layers after them read.
  Status deepseek_v41() {
    BZ_ASSIGN(const std::vector<int32_t> ratios, ratios_of_layers());
    BZ_ASSIGN(const std::vector<int32_t> sources, c_.numbers("kv_source_layer_ids"));
    BZ_ASSIGN(const int32_t window, c_.count("sliding_window", HfConfig::kMaxTokens));
    BZ_ASSIGN(const int32_t dim, c_.count("head_dim"));
    BZ_TRY(require("head_dim", dim, 512));
    const LayerSpec entry = latent_layer(0, LatentFormat::kFp8V41);
    for (int32_t i = 0; i < num_layers_; ++i) {
      add(windowed(entry, window), i);
      if (std::find(sources.begin(), sources.end(), i) == sources.end()) continue;
      const int32_t ratio = ratios[index(i)];
      if (ratio == 0) return c_.refuse("kv_source_layer_ids", "layer {} has ratio 0", i);
      add(compressed(entry, ratio), i);
      add(compressed(latent_layer(0, LatentFormat::kIndex), ratio), i);
      if (ratio > 1)
        add(kv::ring_layer(0, ratio, kv::compressor_ring_v41(options_.num_spec), {2 * kF32Bytes * dim, 0}), i);
    }
    return ok_status();
  }

  // Kimi delta attention, and sparse layers with a latent entry, a pooled index key and the open pool's tail.
  Status glm5_next() {
    BZ_ASSIGN(const LayerSpec state, kda_state());
    BZ_ASSIGN(const LayerSpec latent, latent_spec());
    BZ_ASSIGN(const int32_t index_dim, c_.count("index_head_dim"));
    BZ_ASSIGN(const int32_t pool, c_.count_or("index_kpool", 16));
    BZ_TRY(require("index_head_dim", index_dim, 128));
    BZ_ASSIGN(const auto types, layer_types([](int32_t i) { return i % 4 == 3 ? "sparse" : "linear"; }));
    BZ_ASSIGN(const auto indexers, c_.words("indexer_types"));
    for (int32_t i = 0; i < num_layers_; ++i) {
      if (has_word(types[index(i)], "linear")) {
        add(state, i);
        continue;
      }
      add(latent, i);
      if (indexers.size() > index(i) && indexers[index(i)] == "shared") continue;  // reads an earlier layer's choice
      add(compressed(latent_layer(0, LatentFormat::kIndex), pool), i);
      add(kv::ring_layer(0, pool, kv::pool_ring(pool, options_.num_spec),
                         {kBF16Bytes * index_dim, kBF16Bytes * index_dim}),
          i);
    }
    return ok_status();
  }

  // linear_attn_config lists the full layers, counted from one.
  Status kimi_linear() {
    BZ_ASSIGN(const LayerSpec state, kda_state());
    BZ_ASSIGN(const LayerSpec latent, latent_spec());
    BZ_ASSIGN(const HfConfig linear, c_.child_or_self("linear_attn_config"));
    BZ_ASSIGN(const std::vector<int32_t> full, linear.numbers("full_attn_layers"));
    if (full.empty()) return c_.refuse("linear_attn_config.full_attn_layers", "is missing");
    for (int32_t i = 0; i < num_layers_; ++i)
      add(std::find(full.begin(), full.end(), i + 1) != full.end() ? latent : state, i);
    return ok_status();
  }

  // Gated DeltaNet, and every full_attention_interval-th layer attention. Qwen4's adds index keys, their ring and PLE.
  Status qwen3_next() { return gated_delta_net(false); }
  Status qwen4_exp() { return gated_delta_net(true); }

  Status mamba2() {
    BZ_ASSIGN(const int32_t heads, c_.count("num_heads"));
    BZ_ASSIGN(const int32_t dim, c_.count("head_dim"));
    BZ_ASSIGN(const int32_t state_size, c_.count("state_size"));
    BZ_ASSIGN(const int32_t groups, c_.count("n_groups"));
    BZ_ASSIGN(const int32_t kernel, c_.count_or("conv_kernel", 4));
    const int64_t channels = int64_t{heads} * dim + 2 * int64_t{groups} * state_size;
    const LayerSpec state =
        kv::state_layer(0, (kernel - 1) * channels * kBF16Bytes, int64_t{heads} * dim * state_size * kF32Bytes);
    for (int32_t i = 0; i < num_layers_; ++i) add(state, i);
    return ok_status();
  }

 private:
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  static bool has_word(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }
  void add(LayerSpec spec, int32_t layer) {
    spec.layer = layer;
    specs_.push_back(spec);
  }
  Status require(const char* key, int32_t value, int32_t known) const {
    if (value == known) return ok_status();
    return c_.refuse(key, "{}: the entry formats of this family are known for {} only", value, known);
  }

  Result<LayerSpec> attention_spec() const {
    BZ_ASSIGN(const int32_t heads, c_.count("num_attention_heads"));
    BZ_ASSIGN(const int32_t kv_heads, c_.count_or("num_key_value_heads", heads));
    BZ_ASSIGN(const int32_t hidden, c_.count("hidden_size"));
    BZ_ASSIGN(const int32_t dim, c_.count_or("head_dim", std::max(1, hidden / heads)));
    return kv::attention_layer(0, kv_heads, dim, options_.kv_dtype);
  }
  // The latent vector and, where there is one, the rotated part that all heads share.
  Result<LayerSpec> latent_spec() const {
    BZ_ASSIGN(const int32_t latent, c_.count("kv_lora_rank"));
    BZ_ASSIGN(const int32_t rope, c_.count_or_zero("qk_rope_head_dim"));
    return LayerSpec{kv::CacheKind::kFull, 0, {kBF16Bytes * (int64_t{latent} + rope), 0}};
  }
  Status latent_layers(bool sparse) {
    BZ_ASSIGN(LayerSpec latent, latent_spec());
    if (sparse) {
      BZ_ASSIGN(const int32_t rank, c_.count("kv_lora_rank"));
      BZ_ASSIGN(const int32_t rope, c_.count("qk_rope_head_dim"));
      BZ_ASSIGN(const int32_t index_dim, c_.count("index_head_dim"));
      BZ_TRY(require("kv_lora_rank", rank, 512));
      BZ_TRY(require("qk_rope_head_dim", rope, 64));
      BZ_TRY(require("index_head_dim", index_dim, 128));
      latent = latent_layer(0, LatentFormat::kFp8);
    }
    for (int32_t i = 0; i < num_layers_; ++i) {
      add(latent, i);
      if (sparse) add(latent_layer(0, LatentFormat::kIndex), i);
    }
    return ok_status();
  }
  Result<LayerSpec> kda_state() const {
    BZ_ASSIGN(const HfConfig linear, c_.child_or_self("linear_attn_config"));
    const bool nested = c_.has("linear_attn_config");
    BZ_ASSIGN(const int32_t heads, linear.count(nested ? "num_heads" : "linear_num_heads"));
    BZ_ASSIGN(const int32_t dim, linear.count(nested ? "head_dim" : "linear_head_dim"));
    BZ_ASSIGN(const int32_t kernel, linear.count_or(nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4));
    const int64_t channels = 3 * int64_t{heads} * dim;  // q, k and v
    return kv::state_layer(0, (kernel - 1) * channels * kBF16Bytes, int64_t{heads} * dim * dim * kF32Bytes);
  }
  Result<std::vector<int32_t>> ratios_of_layers() const {
    BZ_ASSIGN(std::vector<int32_t> ratios, c_.numbers("compress_ratios"));
    if (ratios.size() < index(num_layers_))
      return c_.refuse("compress_ratios", "{} entries for {} layers", ratios.size(), num_layers_);
    return ratios;
  }
  Result<std::vector<std::string>> layer_types(const std::function<const char*(int32_t)>& otherwise) const {
    BZ_ASSIGN(std::vector<std::string> types, c_.words("layer_types"));
    if (types.empty()) {
      for (int32_t i = 0; i < num_layers_; ++i) types.emplace_back(otherwise(i));
    }
    if (types.size() != index(num_layers_))
      return c_.refuse("layer_types", "{} entries for {} layers", types.size(), num_layers_);
    return types;
  }

  Status gated_delta_net(bool qwen4) {
    BZ_ASSIGN(const LayerSpec attention, attention_spec());
    BZ_ASSIGN(const int32_t key_heads, c_.count("linear_num_key_heads"));
    BZ_ASSIGN(const int32_t value_heads, c_.count("linear_num_value_heads"));
    BZ_ASSIGN(const int32_t key_dim, c_.count("linear_key_head_dim"));
    BZ_ASSIGN(const int32_t value_dim, c_.count("linear_value_head_dim"));
    BZ_ASSIGN(const int32_t kernel, c_.count_or("linear_conv_kernel_dim", 4));
    BZ_ASSIGN(const int32_t interval, c_.count_or("full_attention_interval", 4));
    BZ_ASSIGN(const auto types, layer_types([&](int32_t i) { return (i + 1) % interval == 0 ? "full" : "linear"; }));
    const int64_t channels = 2 * int64_t{key_heads} * key_dim + int64_t{value_heads} * value_dim;
    const LayerSpec state = kv::state_layer(0, (kernel - 1) * channels * kBF16Bytes,
                                            int64_t{value_heads} * key_dim * value_dim * kF32Bytes);
    for (int32_t i = 0; i < num_layers_; ++i) {
      if (has_word(types[index(i)], "linear")) {
        add(state, i);
        continue;
      }
      add(attention, i);
      if (qwen4) BZ_TRY(add_qwen4_index(i));
    }
    return qwen4 ? add_ple() : ok_status();
  }
  // One index key per indexer_compress_ratio tokens, and the raw keys of the open window.
  Status add_qwen4_index(int32_t layer) {
    if (!c_.has("indexer_head_dim")) return ok_status();
    BZ_ASSIGN(const int32_t dim, c_.count("indexer_head_dim"));
    BZ_ASSIGN(const int32_t ratio, c_.count("indexer_compress_ratio"));
    const LayerSpec key{kv::CacheKind::kFull, layer, {kBF16Bytes * dim, 0}};
    add(compressed(key, ratio), layer);
    add(kv::ring_layer(layer, ratio, kv::pool_ring(ratio, options_.num_spec), key.entry_bytes), layer);
    return ok_status();
  }
  // Per-layer embeddings: the last rows that a dilated convolution over the residual streams needs, and two token ids.
  Status add_ple() {
    BZ_ASSIGN(const std::vector<int32_t> layers, c_.numbers("ple_layer_ids"));
    if (layers.empty()) return ok_status();
    BZ_ASSIGN(const int32_t hidden, c_.count("hidden_size"));
    BZ_ASSIGN(const int32_t streams, c_.count("hc_count"));
    BZ_ASSIGN(const int32_t ngram, c_.count("ngram_size"));
    BZ_ASSIGN(const int32_t kernel, c_.count_or("ple_conv_kernel_size", 4));
    const int64_t rows = int64_t{kernel - 1} * ngram;
    for (int32_t layer : layers)  // counted from one
      add(kv::state_layer(0, rows * streams * hidden * kBF16Bytes, (ngram - 1) * int64_t{sizeof(int32_t)}), layer - 1);
    return ok_status();
  }

  const HfConfig& c_;
  CacheOptions options_;
  int32_t num_layers_ = 0;
  std::vector<LayerSpec> specs_;
};

const std::map<std::string, Status (Reader::*)()>& families() {
  static const std::map<std::string, Status (Reader::*)()> all = {
      {"llama", &Reader::full_attention},
      {"mistral", &Reader::full_attention},
      {"qwen2", &Reader::full_attention},
      {"qwen3", &Reader::full_attention},
      {"qwen3_moe", &Reader::full_attention},
      {"gemma3", &Reader::gemma3},
      {"gemma3_text", &Reader::gemma3},
      {"deepseek_v3", &Reader::deepseek_v3},
      {"deepseek_v32", &Reader::deepseek_v32},
      {"deepseek_v4", &Reader::deepseek_v4},
      {"deepseek_v41", &Reader::deepseek_v41},
      {"glm5_next", &Reader::glm5_next},
      {"glm5_next_text", &Reader::glm5_next},
      {"kimi_linear", &Reader::kimi_linear},
      {"qwen3_next", &Reader::qwen3_next},
      {"qwen3_5_text", &Reader::qwen3_next},
      {"qwen4_exp", &Reader::qwen4_exp},
      {"qwen4_exp_text", &Reader::qwen4_exp},
      {"mamba2", &Reader::mamba2},
  };
  return all;
}

}  // namespace

std::string known_cache_families() {
  std::string names;
  for (const auto& [name, read] : families()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Result<int32_t> max_context(const HfConfig& config) {
  const char* key = config.has("max_position_embeddings") ? "max_position_embeddings" : "model_max_length";
  return config.count_or_zero(key, HfConfig::kMaxTokens);
}

Result<std::vector<LayerSpec>> cache_specs(const HfConfig& config, const CacheOptions& options) {
  const auto family = families().find(config.model_type());
  if (family == families().end()) {
    return invalid_argument("{}: model_type '{}' is not known (known: {})", config.name(), config.model_type(),
                            known_cache_families());
  }
  Reader reader(config, options);
  BZ_TRY(reader.begin());
  BZ_TRY((reader.*family->second)());
  return reader.take();
}

}  // namespace bz::models
