#include "models/model_config.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/llama_tensors.h"
#include "models/tiny_llama.h"

namespace bz::models {
namespace {

using formats::GgufFile;
using formats::GgufWriter;
using ::testing::HasSubstr;

// The config of a file, or its error. The bytes need not outlive the call.
Result<ModelConfig> config_of(const GgufWriter& writer) {
  const auto bytes = writer.bytes();
  auto file = GgufFile::parse(bytes, "m.gguf");
  if (!file.ok()) return file.status();
  return model_config_from_gguf(*file);
}
Result<ModelConfig> config_of(const TinyLlama& tiny) { return config_of(tiny.writer()); }

void expect_error(const Result<ModelConfig>& config, const std::string& part) {
  ASSERT_FALSE(config.ok()) << "expected an error with: " << part;
  EXPECT_THAT(config.status().message(), testing::StartsWith("m.gguf: "));
  EXPECT_THAT(config.status().message(), HasSubstr(part));
  EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(config.status().exit_code(), 2);
}

TEST(ModelConfig, ReadsATinyModel) {
  auto config = config_of(TinyLlama{});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->basename, "tiny");
  EXPECT_EQ(config->vocab_size, 256);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->intermediate_size, 128);
  EXPECT_EQ(config->context_length, 512);
  EXPECT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->rope.dims, 16);
  EXPECT_EQ(config->rope.style, ops::RopeStyle::kAdjacentPairs);
  EXPECT_TRUE(config->tie_embeddings);
}

TEST(ModelConfig, TiedEmbeddingsFollowTheFile) {
  TinyLlama tiny;
  tiny.tie_embeddings = false;
  auto config = config_of(tiny);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->tie_embeddings);
}

// Every numeric key set to nonsense: the values parse, the model makes no sense.
TEST(ModelConfig, RefusesNonsenseCounts) {
  const std::vector<std::pair<uint32_t TinyLlama::*, std::string>> counts = {
      {&TinyLlama::num_layers, "llama.block_count"},
      {&TinyLlama::context_length, "llama.context_length"},
      {&TinyLlama::hidden_size, "llama.embedding_length"},
      {&TinyLlama::intermediate_size, "llama.feed_forward_length"},
      {&TinyLlama::num_heads, "llama.attention.head_count"},
      {&TinyLlama::num_kv_heads, "llama.attention.head_count_kv"},
      {&TinyLlama::head_dim, "llama.attention.key_length"},
      {&TinyLlama::vocab_size, "llama.vocab_size"},
  };
  for (const auto& [member, key] : counts) {
    for (const uint32_t bad : {0u, 0x80000000u, 0xffffffffu}) {
      TinyLlama good;
      TinyLlama claimed;
      claimed.*member = bad;
      claimed.with_tokenizer = false;
      GgufWriter w;
      claimed.add_metadata(w);
      good.add_tensors(w);
      expect_error(config_of(w), "key '" + key + "'");
    }
  }
}

// Metadata of one model on the tensors of another.
void expect_contradiction(const std::function<void(TinyLlama&)>& change, const std::string& part) {
  TinyLlama claimed;
  change(claimed);
  claimed.with_tokenizer = false;
  GgufWriter w;
  claimed.add_metadata(w);
  TinyLlama{}.add_tensors(w);
  expect_error(config_of(w), part);
}

TEST(ModelConfig, RefusesContradictions) {
  expect_contradiction([](auto& t) { t.num_layers = 3; }, "tensor 'blk.2.attn_norm.weight' is missing");
  expect_contradiction([](auto& t) { t.num_layers = 1; }, "tensor 'blk.1.attn_norm.weight' is not part of");
  expect_contradiction([](auto& t) { t.hidden_size = 32; }, "tensor 'token_embd.weight' has shape [64, 256, 1, 1]");
  expect_contradiction([](auto& t) { t.intermediate_size = 64; }, "tensor 'blk.0.ffn_gate.weight' has shape");
  expect_contradiction([](auto& t) { t.vocab_size = 255; }, "key 'llama.vocab_size' is 255: but tensor");
  expect_contradiction([](auto& t) { t.num_kv_heads = 3; }, "does not divide the 4 query heads");
  expect_contradiction([](auto& t) { t.num_kv_heads = 1; }, "tensor 'blk.0.attn_k.weight' has shape");
  expect_contradiction([](auto& t) { t.head_dim = 15; }, "expected an even number");
  expect_contradiction([](auto& t) { t.head_dim = 2048; }, "key 'llama.attention.key_length' is 2048");
  expect_contradiction([](auto& t) { t.head_dim = 8; }, "tensor 'blk.0.attn_q.weight' has shape");
}

TEST(ModelConfig, RefusesNonsenseFloats) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity, 0.0f, -1.0f, 2.0f}) {
    TinyLlama tiny;
    tiny.rms_norm_eps = bad;
    expect_error(config_of(tiny), "key 'llama.attention.layer_norm_rms_epsilon'");
  }
  for (const float bad : {nan, infinity, -infinity, 0.0f, -10000.0f, 1e30f}) {
    TinyLlama tiny;
    tiny.rope_theta = bad;
    expect_error(config_of(tiny), "key 'llama.rope.freq_base'");
  }
}

TEST(ModelConfig, ChecksTheVocabulary) {
  GgufWriter w;
  TinyLlama tiny;
  tiny.with_tokenizer = false;
  tiny.add_metadata(w);
  w.add("tokenizer.ggml.tokens", std::vector<std::string>(255, "x"));
  tiny.add_tensors(w);
  expect_error(config_of(w), "has 255 tokens, but the embedding has 256 rows");
  for (const char* key : {"bos", "eos", "eot", "eom"}) {
    const std::string full = std::string("tokenizer.ggml.") + key + "_token_id";
    GgufWriter past;
    tiny.add_metadata(past);
    past.add(full, uint32_t{256});
    tiny.add_tensors(past);
    expect_error(config_of(past), "key '" + full + "' is 256");
  }
}

TEST(ModelConfig, RefusesWhatIsNotBuiltYet) {
  GgufWriter gemma;
  gemma.add("general.architecture", "gemma3");
  expect_error(config_of(gemma), "architecture 'gemma3' is not supported yet (supported: llama)");
  expect_error(config_of(GgufWriter{}), "key 'general.architecture' is missing");
  expect_error(config_of(GgufWriter().add("general.architecture", "evil\nname")), "'evil\\x0aname'");
  const auto with = [](auto&& add) {
    GgufWriter w = TinyLlama{}.writer();
    add(w);
    return config_of(w);
  };
  expect_error(with([](auto& w) { w.add("llama.expert_count", uint32_t{8}); }), "mixtures of experts");
  expect_error(with([](auto& w) { w.add("llama.attention.sliding_window", uint32_t{8}); }), "windows");
  expect_error(with([](auto& w) { w.add("llama.rope.scaling.type", "yarn"); }), "'yarn'");
  const std::vector<float> bias(64);
  expect_error(with([&](auto& w) { w.add_tensor("blk.0.attn_q.bias", {64}, bias); }),
               "'blk.0.attn_q.bias' is not part");
}

TEST(ModelConfig, NormsMustBeFloatsAndWeightsNotIntegers) {
  const std::vector<std::byte> data(256 * 64);
  GgufWriter integers;
  TinyLlama{}.add_metadata(integers);
  integers.add_tensor("token_embd.weight", {64, 256}, DType::kI8, data);
  expect_error(config_of(integers), "tensor 'token_embd.weight' has type i8");
  GgufWriter quantised_norm;
  TinyLlama{}.add_metadata(quantised_norm);
  quantised_norm.add_tensor("token_embd.weight", {64, 256}, DType::kF16, std::vector<std::byte>(2 * 256 * 64));
  quantised_norm.add_tensor("blk.0.attn_norm.weight", {64}, DType::kQ8_0, std::span(data).first(68));
  expect_error(config_of(quantised_norm), "tensor 'blk.0.attn_norm.weight' has type q8_0, expected f32, f16 or bf16");
}

TEST(ModelConfig, RopeScalingReachesTheFrequencies) {
  GgufWriter w = TinyLlama{}.writer();
  w.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.0f);
  const std::vector<float> factors = {1, 2, 1, 1, 1, 1, 1, 8};
  w.add_tensor("rope_freqs.weight", {8}, factors);
  auto config = config_of(w);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope.linear_factor, 4.0);
  EXPECT_EQ(config->rope.freq_factors, factors);
  const std::vector<double> plain = rope_inv_freq({.theta = 10000.0, .dims = 16});
  const std::vector<double> scaled = rope_inv_freq(config->rope);
  ASSERT_EQ(plain.size(), 8u);
  EXPECT_EQ(plain[0], 1.0);
  EXPECT_DOUBLE_EQ(plain[4], 0.01);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4.0 / static_cast<double>(factors[i])) << i;
  }
}

TEST(ModelConfig, RefusesBadRopeFactors) {
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    GgufWriter w = TinyLlama{}.writer();
    std::vector<float> factors(8, 1.0f);
    factors[5] = bad;
    w.add_tensor("rope_freqs.weight", {8}, factors);
    expect_error(config_of(w), "at index 5");
    GgufWriter linear = TinyLlama{}.writer();
    linear.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", bad);
    expect_error(config_of(linear), "llama.rope.scaling.factor");
  }
  GgufWriter w = TinyLlama{}.writer();
  w.add_tensor("rope_freqs.weight", {4}, std::vector<float>(4, 1.0f));
  expect_error(config_of(w), "is no vector of 8 f32 values");
}

TEST(ModelConfig, ReadsSmolLM2) {
  const char* folder = std::getenv("BLOCKZERO_MODEL_DIR");
  const char* home = std::getenv("HOME");
  const std::string path =
      (folder != nullptr ? std::string(folder) : std::string(home ? home : "") + "/.cache/blockzero/models") +
      "/SmolLM2-135M-Instruct.Q4_1.gguf";
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message() << " (./dev demo fetches it; BLOCKZERO_MODEL_DIR names its folder)";
  auto config = model_config_from_gguf(*file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->vocab_size, 49152);
  EXPECT_EQ(config->hidden_size, 576);
  EXPECT_EQ(config->num_layers, 30);
  EXPECT_EQ(config->num_heads, 9);
  EXPECT_EQ(config->num_kv_heads, 3);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->intermediate_size, 1536);
  EXPECT_EQ(config->context_length, 8192);
  EXPECT_EQ(config->rope.theta, 100000.0);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(config->basename, "smollm2");
}

}  // namespace
}  // namespace bz::models
