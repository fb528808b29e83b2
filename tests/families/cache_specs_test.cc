// The caches of the released models, from their config.json (tests/fixtures/configs, written from the models' papers
// and reference code): shapes, memory by hand, waste, and a million tokens.
#include "models/cache_specs.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "kv/cache_manager.h"
#include "kv/layout.h"
#include "source_dir.h"

namespace bz::models {
namespace {

using kv::LayerSpec;
using kv::Layout;

HfConfig config_of(const std::string& name) {
  Result<HfConfig> config = HfConfig::open(std::string(kSourceDir) + "/tests/fixtures/configs/" + name + ".json");
  BZ_CHECK_MSG(config.ok(), "{}", config.status().message());
  return *config;
}
std::vector<std::string> all_configs() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(kSourceDir) + "/tests/fixtures/configs"))
    names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}
std::vector<LayerSpec> specs_of(const std::string& name, int32_t num_spec = 0) {
  return cache_specs(config_of(name), {DType::kBF16, num_spec}).value();
}
Layout layout_of(const std::string& name, int32_t num_spec = 0) {
  kv::LayoutRequest request;
  request.layers = specs_of(name, num_spec);
  request.cache_bytes = int64_t{80} << 30;
  request.granule = 2 << 20;
  request.num_spec = num_spec;
  Result<Layout> layout = kv::make_layout(request);
  BZ_CHECK_MSG(layout.ok(), "{}: {}", name, layout.status().message());
  return *layout;
}
int64_t bytes_per_request(const std::string& name, int32_t tokens) {
  return bytes_of_request(layout_of(name), tokens, 0).taken;
}

int64_t count(const std::vector<LayerSpec>& specs, kv::CacheKind kind) {
  return std::count_if(specs.begin(), specs.end(), [&](const LayerSpec& s) { return s.kind == kind; });
}

TEST(CacheSpecs, EveryLayerOfEveryFamily) {
  using enum kv::CacheKind;
  const auto gemma = specs_of("gemma3_4b");
  EXPECT_EQ(count(gemma, kFull), 5);
  EXPECT_EQ(count(gemma, kSlidingWindow), 29);
  EXPECT_EQ(gemma[0].window, 1024);
  const auto v4 = specs_of("deepseek_v4_flash", 1);
  EXPECT_EQ(count(v4, kSlidingWindow), 43);
  EXPECT_EQ(count(v4, kCompressed), 21 * 2 + 20);
  EXPECT_EQ(count(v4, kRing), 41);
  EXPECT_EQ(v4[5], kv::ring_layer(2, 4, 9, {8192, 2048}, true));  // layer 2: window, entries, index keys, ring
  const auto v41 = specs_of("deepseek_v41_flash", 2);
  EXPECT_EQ(count(v41, kSlidingWindow), 40);
  EXPECT_EQ(count(v41, kCompressed), 8);
  EXPECT_EQ(count(v41, kRing), 3);  // layer 20 pools nothing
  const auto glm = specs_of("glm_5_3_flash");
  EXPECT_EQ(count(glm, kState), 34);
  EXPECT_EQ(count(glm, kFull), 11);
  EXPECT_EQ(count(glm, kCompressed), 11);
  EXPECT_EQ(count(glm, kRing), 11);
  const auto kimi = specs_of("kimi_linear_48b");
  EXPECT_EQ(count(kimi, kFull), 7);
  EXPECT_EQ(kimi[3].kind, kFull);
  EXPECT_EQ(kimi[26].kind, kFull);
  const auto qwen4 = specs_of("qwen4_exp");
  EXPECT_EQ(count(qwen4, kState), 36 + 1);  // and PLE's, in layer 1
  EXPECT_EQ(qwen4.back(), kv::state_layer(1, 9 * 10240 * 2, 8));
  EXPECT_EQ(count(qwen4, kRing), 12);
  EXPECT_EQ(specs_of("qwen3_next_80b")[0], kv::state_layer(0, 3 * 8192 * 2, 32 * 128 * 128 * 4));
  EXPECT_EQ(specs_of("mamba2_7b")[0], kv::state_layer(0, 3 * 10240 * 2, 128 * 64 * 128 * 4));
}

// What a request of 8,192 tokens takes, counted by hand.
TEST(CacheSpecs, MemoryByHand) {
  EXPECT_EQ(bytes_per_request("llama_3_2_1b", 8192), int64_t{16} * 2 * 8 * 64 * 2 * 8192);
  EXPECT_EQ(bytes_per_request("qwen3_8b", 8192), int64_t{147456} * 8192);
  EXPECT_EQ(bytes_per_request("deepseek_v3", 8192), int64_t{61} * 1152 * 8192);
  EXPECT_EQ(bytes_per_request("mamba2_7b", 8192), int64_t{64} * (3 * 10240 * 2 + 128 * 64 * 128 * 4));
  // Twenty states of 73,728 + 2,097,152 bytes in five groups of four; seven latent layers in blocks of 1,024 tokens.
  EXPECT_EQ(bytes_per_request("kimi_linear_48b", 8192), int64_t{5 + 8} * 4 * (73728 + 2097152));
}

// A typical request and one of 131,072 tokens waste a tenth at most.
TEST(CacheSpecs, WasteIsATenthAtMost) {
  for (const std::string& name : all_configs()) {
    const Layout layout = layout_of(name);
    for (int32_t tokens : {8192, 131072})
      EXPECT_LE(bytes_of_request(layout, tokens, 0).waste(), kv::kExplainedWaste) << name;
  }
}

// Blocks of more than 128 tokens and pages below 32 KiB are said to be so.
TEST(CacheSpecs, WhatIsUnusualIsInTheNotes) {
  for (const std::string& name : all_configs()) {
    const Layout layout = layout_of(name);
    std::string notes;
    for (const std::string& note : layout.notes) notes += note + "\n";
    const auto says = [&](size_t g, const char* what) {
      return notes.find(fmt::format("group {}: {}", g, what)) != std::string::npos;
    };
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      const kv::GroupSpec& spec = layout.groups[g].spec;
      const int32_t tokens = tokens_per_block(spec);
      int64_t page = kv::kGoodPageBytes;
      for (const kv::LayerPages& p : layout.groups[g].layers) page = std::min(page, p.page_bytes);
      EXPECT_EQ(says(g, "a layer's page is "), tokens > 0 && page < kv::kGoodPageBytes) << name << "\n" << notes;
      const bool large = tokens > kv::kMaxPlainBlockTokens && spec.table_of == kv::kOwnTable;
      EXPECT_EQ(says(g, "blocks of "), large) << name << "\n" << notes;
    }
  }
}

TEST(CacheSpecs, AMillionTokensFitTheTypes) {
  for (const std::string& name : all_configs()) {
    kv::CacheConfig config = make_cache_config(layout_of(name, 2), 3, 1 << 20);
    config.num_blocks = 1 << 20;
    config.num_spec = 2;
    kv::CacheManager m(config);
    const kv::RowId row = m.admit();
    ASSERT_TRUE(m.can_append(row, 1 << 20)) << name;
    m.append(row, 1 << 20);
    for (size_t g = 0; g < config.groups.size(); ++g) {
      const kv::GroupView view = m.tables().view(kv::GroupId(static_cast<int32_t>(g)));
      if (view.form == kv::SlotForm::kState) {
        EXPECT_NE(state_of(view, row, 0), kv::kNullState);
      } else {
        EXPECT_GT(write_slot(view, row, (1 << 20) - 1, 1 << 20).value(), 0) << name << " group " << g;
      }
    }
  }
}

TEST(CacheSpecs, WhatIsWrongIsSaidInOneLine) {
  const auto says = [](const std::string& json, const char* what) {
    const auto config = HfConfig::parse("config.json", json);
    const std::string message = config.ok() ? cache_specs(*config, {}).status().message() : config.status().message();
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  says("[1]", "not a JSON object");
  says("{", "not a JSON object");
  says("{}", "'model_type'");
  says(R"({"model_type": "gpt9", "num_hidden_layers": 2})", "'gpt9' is not known (known: deepseek_v3");
  says(R"({"model_type": "llama"})", "'num_hidden_layers': is missing");
  says(R"({"model_type": "llama", "num_hidden_layers": 0})", "whole number from 1");
  says(R"({"model_type": "llama", "num_hidden_layers": "two"})", "whole number from 1");
  says(R"({"model_type": "llama", "num_hidden_layers": 9999})", "9999 layers");
  says(R"({"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0]})", "1 entries for 3 layers");
  says(R"({"model_type": "kimi_linear", "num_hidden_layers": 3, "kv_lora_rank": 512,
           "linear_attn_config": {"num_heads": 2, "head_dim": 4}})",
       "full_attn_layers");
}

// A key that changes a size is read: with another value the plan is another.
TEST(CacheSpecs, EverySizeIsRead) {
  const auto first = [](const std::string& json) {
    return cache_specs(HfConfig::parse("c", json).value(), {}).value().front();
  };
  EXPECT_EQ(first(R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4})"),
            kv::attention_layer(0, 4, 16, DType::kBF16));
  EXPECT_EQ(first(R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "head_dim": 24})"),
            kv::attention_layer(0, 2, 24, DType::kBF16));
}

}  // namespace
}  // namespace bz::models
