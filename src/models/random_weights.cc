#include "models/random_weights.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/half.h"
#include "base/math.h"
#include "formats/gguf_writer.h"
#include "models/llama_tensors.h"
#include "models/model_config.h"

namespace bz::models {
namespace {

constexpr uint32_t kAlignment = 32;
// The same numbers come again after so many bytes: no power of two, and larger than any cache.
constexpr size_t kPeriod = (size_t{96} << 20) + 4096;

Result<ModelConfig> read_config(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Status(StatusCode::kNotFound, fmt::format("{}: cannot be read; name a config.json", path));
  const nlohmann::json j = nlohmann::json::parse(in, nullptr, false);
  if (!j.is_object()) return invalid_argument("{}: is no JSON object; name a model's config.json", path);
  const auto type = j.find("model_type");
  if (type == j.end() || *type != "llama") {
    return invalid_argument("{}: model_type {} is not supported; llama is", path,
                            type == j.end() ? "(none)" : type->dump().substr(0, 60));
  }
  ModelConfig c;
  const auto count = [&](const char* key, int32_t fallback, int32_t& out) {
    const auto it = j.find(key);
    out = it != j.end() && it->is_number_integer() && *it > 0 && *it <= (1 << 24) ? it->get<int32_t>() : 0;
    if (it == j.end() || it->is_null()) out = fallback;
    return out > 0 ? ok_status() : invalid_argument("{}: '{}' is missing or no sensible count", path, key);
  };
  BZ_TRY(count("vocab_size", 0, c.vocab_size));
  BZ_TRY(count("hidden_size", 0, c.hidden_size));
  BZ_TRY(count("num_hidden_layers", 0, c.num_layers));
  BZ_TRY(count("num_attention_heads", 0, c.num_heads));
  BZ_TRY(count("num_key_value_heads", c.num_heads, c.num_kv_heads));
  BZ_TRY(count("head_dim", c.hidden_size / c.num_heads, c.head_dim));
  BZ_TRY(count("intermediate_size", 0, c.intermediate_size));
  BZ_TRY(count("max_position_embeddings", 2048, c.context_length));
  const auto number = [&](const char* key, double fallback) {  // some configs write null for what they leave out
    const auto it = j.find(key);
    return it != j.end() && it->is_number() ? it->get<double>() : fallback;
  };
  c.tie_embeddings = j.contains("tie_word_embeddings") && j["tie_word_embeddings"] == true;
  c.rope.theta = number("rope_theta", 10000);
  c.rms_norm_eps = static_cast<float>(number("rms_norm_eps", 1e-5));
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
  BZ_ASSIGN(const ModelConfig config, read_config(config_path));
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
