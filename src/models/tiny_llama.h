// A small valid GGUF of architecture llama with random weights, for tests that need a model but no meaning.
//
//   TinyLlama tiny;                       // change what the test is about
//   tiny.num_layers = 3;
//   auto bytes = tiny.writer().bytes();
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "formats/gguf_writer.h"

namespace bz::models {

struct TinyLlama {
  uint32_t vocab_size = 256;
  uint32_t hidden_size = 64;
  uint32_t num_layers = 2;
  uint32_t num_heads = 4;
  uint32_t num_kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t intermediate_size = 128;
  uint32_t context_length = 512;
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  bool tie_embeddings = true;
  DType matrix_type = DType::kF32;     // of the layers: f32, q4_1 or q8_0
  DType embedding_type = DType::kF32;  // of token_embd and output: f32, q4_1 or q8_0
  bool with_tokenizer = true;          // one token per byte, no merges; needs vocab_size >= 257 to end with <|end|>
  uint64_t seed = 1;

  formats::GgufWriter writer() const {
    formats::GgufWriter w;
    add_metadata(w);
    add_tensors(w);
    return w;
  }

  void add_metadata(formats::GgufWriter& w) const {
    w.add("general.architecture", "llama").add("general.name", "tiny").add("general.basename", "tiny");
    w.add("llama.block_count", num_layers).add("llama.context_length", context_length);
    w.add("llama.embedding_length", hidden_size).add("llama.feed_forward_length", intermediate_size);
    w.add("llama.attention.head_count", num_heads).add("llama.attention.head_count_kv", num_kv_heads);
    w.add("llama.attention.key_length", head_dim).add("llama.attention.value_length", head_dim);
    w.add("llama.attention.layer_norm_rms_epsilon", rms_norm_eps).add("llama.rope.freq_base", rope_theta);
    w.add("llama.rope.dimension_count", head_dim).add("llama.vocab_size", vocab_size);
    if (with_tokenizer) add_tokenizer(w);
  }

  // Token i < 256 is byte i in byte-level BPE's alphabet; the rest are <|extra_i|>, the last of them <|end|>.
  void add_tokenizer(formats::GgufWriter& w) const {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    uint32_t next_stand_in = 256;
    for (uint32_t id = 0; id < vocab_size; ++id) {
      if (id >= 256) {
        tokens.push_back(id + 1 == vocab_size ? "<|end|>" : "<|extra_" + std::to_string(id) + "|>");
        types.push_back(3);
        continue;
      }
      const bool printable = (id >= 33 && id <= 126) || (id >= 161 && id <= 172) || id >= 174;
      tokens.push_back(two_byte_utf8(printable ? id : next_stand_in++));
      types.push_back(1);
    }
    w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
    w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
    w.add("tokenizer.ggml.merges", std::vector<std::string>{});
    w.add("tokenizer.ggml.eos_token_id", vocab_size - 1);
  }

  void add_tensors(formats::GgufWriter& w) const {
    std::mt19937_64 random(seed);
    const int64_t hidden = hidden_size;
    const int64_t q_size = int64_t{num_heads} * head_dim;
    const int64_t kv_size = int64_t{num_kv_heads} * head_dim;
    const int64_t inner = intermediate_size;
    add_matrix(w, random, "token_embd.weight", hidden, vocab_size, embedding_type);
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      add_norm(w, random, prefix + "attn_norm.weight");
      add_matrix(w, random, prefix + "attn_q.weight", hidden, q_size, matrix_type);
      add_matrix(w, random, prefix + "attn_k.weight", hidden, kv_size, matrix_type);
      add_matrix(w, random, prefix + "attn_v.weight", hidden, kv_size, matrix_type);
      add_matrix(w, random, prefix + "attn_output.weight", q_size, hidden, matrix_type);
      add_norm(w, random, prefix + "ffn_norm.weight");
      add_matrix(w, random, prefix + "ffn_gate.weight", hidden, inner, matrix_type);
      add_matrix(w, random, prefix + "ffn_up.weight", hidden, inner, matrix_type);
      add_matrix(w, random, prefix + "ffn_down.weight", inner, hidden, matrix_type);
    }
    add_norm(w, random, "output_norm.weight");
    if (!tie_embeddings) add_matrix(w, random, "output.weight", hidden, vocab_size, embedding_type);
  }

 private:
  static std::string two_byte_utf8(uint32_t code_point) {
    if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
    return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
  }
  // Scaled so that activations neither vanish nor blow up.
  static void add_matrix(formats::GgufWriter& w, std::mt19937_64& random, const std::string& name, int64_t cols,
                         int64_t rows, DType type) {
    const float sigma = 1.0f / std::sqrt(static_cast<float>(cols));
    if (type != DType::kF32) {
      w.add_tensor(name, {cols, rows}, type, random_blocks(random, type, cols * rows, sigma));
      return;
    }
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> values(static_cast<size_t>(cols * rows));
    for (float& value : values) value = normal(random);
    w.add_tensor(name, {cols, rows}, values);
  }
  // Uniform values with mean 0 and about the given deviation, as quantised blocks: random quants, scales that differ.
  static std::vector<std::byte> random_blocks(std::mt19937_64& random, DType type, int64_t count, float sigma) {
    const DTypeInfo info = dtype_info(type);
    std::uniform_real_distribution<float> around_one(0.7f, 1.3f);
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(type, count)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
      const float step = around_one(random) * sigma / (type == DType::kQ4_1 ? 4.6f : 73.9f);  // of uniform quants
      const uint16_t scale_and_min[2] = {f32_to_f16(step), f32_to_f16(-7.5f * step)};
      std::memcpy(&bytes[at], scale_and_min, type == DType::kQ4_1 ? 4 : 2);
    }
    return bytes;
  }
  void add_norm(formats::GgufWriter& w, std::mt19937_64& random, const std::string& name) const {
    std::uniform_real_distribution<float> around_one(0.5f, 1.5f);
    std::vector<float> values(hidden_size);
    for (float& value : values) value = around_one(random);
    w.add_tensor(name, {hidden_size}, values);
  }
};

}  // namespace bz::models
