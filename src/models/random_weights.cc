#include "models/random_weights.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <vector>

#include "base/half.h"
#include "base/math.h"
#include "formats/gguf_writer.h"
#include "models/hf_config.h"
#include "models/llama_tensors.h"
#include "models/model_config.h"

namespace bz::models {
namespace {

constexpr uint32_t kAlignment = 32;
// The same numbers come again after so many bytes: no power of two, and larger than any cache.
constexpr size_t kPeriod = (size_t{96} << 20) + 4096;

constexpr int32_t kMaxVocab = 1 << 20;
constexpr double kMaxBytes = 1e14;  // of weights that are not made in this memory

// Refused before memory is touched, or the machine would end some process for it.
Status check_fits(const HfConfig& config, const ModelConfig& c, double limit) {
  const double heads = 2.0 * c.num_heads + 2.0 * c.num_kv_heads;
  const double layer = static_cast<double>(c.hidden_size) * (heads * c.head_dim + 3.0 * c.intermediate_size);
  const double bytes = 2.0 * (c.num_layers * layer + 2.0 * c.vocab_size * static_cast<double>(c.hidden_size));
  if (bytes < limit) return ok_status();
  return resource_exhausted("{}: {:.2g} bytes of weights do not fit in {:.2g} bytes of memory; use a smaller config",
                            config.name(), bytes, limit);
}

double machine_bytes() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

Result<ModelConfig> read_config(const std::string& path, bool fill) {
  BZ_ASSIGN(const HfConfig config, HfConfig::open(path));
  if (config.model_type() != "llama") return config.refuse("model_type", "only llama is supported here");
  ModelConfig c;
  BZ_ASSIGN(c.vocab_size, config.count("vocab_size", kMaxVocab));
  BZ_ASSIGN(c.hidden_size, config.count("hidden_size"));
  BZ_ASSIGN(c.num_layers, config.count("num_hidden_layers"));
  BZ_ASSIGN(c.num_heads, config.count("num_attention_heads"));
  BZ_ASSIGN(c.num_kv_heads, config.count_or("num_key_value_heads", c.num_heads));
  BZ_ASSIGN(c.head_dim, config.count_or("head_dim", c.hidden_size / c.num_heads));
  if (c.head_dim < 2 || c.head_dim % 2 != 0) {
    return config.refuse("num_attention_heads", "gives heads of {} elements, expected an even number", c.head_dim);
  }
  BZ_ASSIGN(c.intermediate_size, config.count("intermediate_size"));
  constexpr const char* kContext = "max_position_embeddings";
  c.context_length = 2048;
  if (config.has(kContext)) {
    BZ_ASSIGN(c.context_length, config.count(kContext, HfConfig::kMaxTokens));
  }
  BZ_ASSIGN(c.tie_embeddings, config.flag_or("tie_word_embeddings", false));
  BZ_ASSIGN(c.rope.theta, config.positive_or("rope_theta", 10000.0));
  BZ_ASSIGN(const double eps, config.positive_or("rms_norm_eps", 1e-5));
  c.rms_norm_eps = static_cast<float>(eps);
  BZ_TRY(check_fits(config, c, fill ? machine_bytes() : kMaxBytes));
  return c;
}

formats::GgufWriter header(const ModelConfig& c, size_t& data_bytes) {
  formats::GgufWriter w;
  const auto u32 = [](int32_t value) { return static_cast<uint32_t>(value); };
  w.add("general.architecture", "llama").add("general.basename", "random");
  w.add("llama.block_count", u32(c.num_layers)).add("llama.context_length", u32(c.context_length));
  w.add("llama.embedding_length", u32(c.hidden_size)).add("llama.feed_forward_length", u32(c.intermediate_size));
  w.add("llama.attention.head_count", u32(c.num_heads)).add("llama.attention.head_count_kv", u32(c.num_kv_heads));
  w.add("llama.attention.key_length", u32(c.head_dim)).add("llama.attention.value_length", u32(c.head_dim));
  w.add("llama.rope.dimension_count", u32(c.head_dim)).add("llama.rope.freq_base", static_cast<float>(c.rope.theta));
  w.add("llama.attention.layer_norm_rms_epsilon", c.rms_norm_eps).add("llama.vocab_size", u32(c.vocab_size));
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < c.vocab_size; ++id) tokens.push_back(fmt::format("<|{}|>", id));
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2").add("tokenizer.ggml.tokens", tokens);
  w.add("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 3));
  w.add("tokenizer.ggml.merges", std::vector<std::string>{}).add("tokenizer.ggml.eos_token_id", uint32_t{0});
  data_bytes = 0;
  for (const TensorSpec& spec : llama_tensor_specs(c)) {
    const DType dtype = spec.is_vector ? DType::kF32 : DType::kBF16;
    std::vector<uint64_t> dims = {static_cast<uint64_t>(spec.cols)};
    if (!spec.is_vector) dims.push_back(static_cast<uint64_t>(spec.rows));
    data_bytes = round_up<size_t>(data_bytes, kAlignment);
    w.add_tensor_info(spec.name, dims, formats::gguf_tensor_type(dtype).id, data_bytes);
    data_bytes += static_cast<size_t>(row_bytes(dtype, spec.cols) * spec.rows);
  }
  return w;
}

Status write_all(int fd, size_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n <= 0) return resource_exhausted("random weights: not enough memory; use a smaller config.json");
    offset += static_cast<size_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return ok_status();
}

}  // namespace

void random_weights(size_t size, const std::function<void(size_t, std::span<const std::byte>)>& put) {
  std::vector<uint16_t> numbers(std::min(kPeriod, size + 1) / sizeof(uint16_t));
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (uint16_t& number : numbers) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64 (Marsaglia 2003)
    number = f32_to_bf16(static_cast<float>(static_cast<int32_t>(state >> 32)) * (0.05f / 2147483648.0f));
  }
  const auto bytes = std::as_bytes(std::span(numbers));
  for (size_t at = 0; at < size; at += bytes.size()) put(at, bytes.first(std::min(bytes.size(), size - at)));
}

Result<formats::GgufFile> random_llama(const std::string& config_path, bool fill) {
  BZ_ASSIGN(const ModelConfig config, read_config(config_path, fill));
  size_t data_bytes = 0;
  const std::vector<std::byte> head = header(config, data_bytes).bytes();
  const size_t data_at = round_up<size_t>(head.size(), kAlignment);
  const int fd = ::memfd_create("blockzero_random", 0);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(data_at + data_bytes)) != 0) {
    if (fd >= 0) ::close(fd);
    return internal_error("{}: no memory file of {} bytes", config_path, data_at + data_bytes);
  }
  Status status = write_all(fd, 0, head);
  if (fill) {
    random_weights(data_bytes, [&](size_t offset, std::span<const std::byte> bytes) {
      if (status.ok()) status = write_all(fd, data_at + offset, bytes);
    });
  }
  auto file = status.ok() ? formats::GgufFile::open(fmt::format("/proc/self/fd/{}", fd)) : status;
  ::close(fd);
  return file;
}

}  // namespace bz::models
