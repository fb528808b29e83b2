// Layouts of the released models (docs and papers name the shapes): waste, page sizes, memory by hand.
#include <gtest/gtest.h>

#include "kv/cache_manager.h"
#include "kv/layout.h"

namespace bz::kv {
namespace {

struct Family {
  const char* name;
  std::vector<LayerSpec> layers;
  int32_t num_spec = 0;
};

void add_attention(Family& f, int32_t layers, int32_t heads, int32_t dim) {
  for (int32_t i = 0; i < layers; ++i) f.layers.push_back(attention_layer(i, heads, dim, DType::kBF16));
}

Family llama_1b() {
  Family f{"llama 3.2 1B", {}};
  add_attention(f, 16, 8, 64);
  return f;
}
Family qwen3_8b() {
  Family f{"qwen3 8B", {}};
  add_attention(f, 36, 8, 128);
  return f;
}
// Every sixth layer sees everything, the others 512 tokens.
Family gemma3_1b() {
  Family f{"gemma3 1B", {}};
  for (int32_t i = 0; i < 26; ++i) {
    f.layers.push_back((i + 1) % 6 == 0 ? attention_layer(i, 1, 256, DType::kBF16)
                                        : window_layer(i, 1, 256, DType::kBF16, 512));
  }
  return f;
}
Family deepseek_v3() {
  Family f{"deepseek v3", {}};
  for (int32_t i = 0; i < 61; ++i) f.layers.push_back(latent_layer(i, LatentFormat::kBf16));
  return f;
}
Family deepseek_v32() {
  Family f{"deepseek v3.2", {}};
  for (int32_t i = 0; i < 61; ++i) {
    f.layers.push_back(latent_layer(i, LatentFormat::kFp8));
    f.layers.push_back(latent_layer(i, LatentFormat::kIndex));
  }
  return f;
}
// All layers keep a window of 128; ratios 0, 0, then 4 and 128 in turn. Compressor state is a ring of float rows.
Family deepseek_v4() {
  Family f{"deepseek v4 flash", {}, 1};
  for (int32_t i = 0; i < 43; ++i) {
    f.layers.push_back(windowed(latent_layer(i, LatentFormat::kFp8V4), 128));
    if (i < 2) continue;
    const int32_t ratio = i % 2 == 0 ? 4 : 128;
    f.layers.push_back(compressed(latent_layer(i, LatentFormat::kFp8V4), ratio));
    if (ratio == 4) {
      f.layers.push_back(compressed(latent_layer(i, LatentFormat::kIndex), 4));
      f.layers.push_back(ring_layer(i, 4, compressor_ring_v4(4, true, 1), {8192, 2048}, true));
    } else {
      f.layers.push_back(ring_layer(i, 128, compressor_ring_v4(128, false, 1), {4096, 0}));
    }
  }
  return f;
}
Family deepseek_v41() {
  Family f{"deepseek v4.1 flash", {}, 2};
  for (int32_t i = 0; i < 40; ++i) f.layers.push_back(windowed(latent_layer(i, LatentFormat::kFp8V41), 128));
  for (int32_t source : {2, 8, 14, 20}) {
    const int32_t ratio = source == 20 ? 1 : 2;
    f.layers.push_back(compressed(latent_layer(source, LatentFormat::kFp8V41), ratio));
    f.layers.push_back(compressed(latent_layer(source, LatentFormat::kIndex), ratio));
    if (ratio == 2) f.layers.push_back(ring_layer(source, 2, compressor_ring_v41(2), {4096, 0}));
  }
  return f;
}
// 34 recurrent layers, 11 sparse ones: latent, pooled index keys, tail ring.
Family glm5_next() {
  Family f{"glm 5.3 flash", {}};
  for (int32_t i = 0; i < 45; ++i) {
    if (i % 4 != 3) {
      f.layers.push_back(state_layer(i, 3 * 24576 * 2, 64 * 128 * 128 * 4));
      continue;
    }
    LayerSpec latent = latent_layer(i, LatentFormat::kBf16);
    latent.entry_bytes = {1024, 0};  // 512 bf16, no rope part
    f.layers.push_back(latent);
    f.layers.push_back(compressed(latent_layer(i, LatentFormat::kIndex), 4));
    f.layers.push_back(ring_layer(i, 4, pool_ring(4, 0), {256, 256}));
  }
  return f;
}
Family kimi_linear() {
  Family f{"kimi linear", {}};
  for (int32_t i = 0; i < 27; ++i) {
    const bool full = i % 4 == 3 || i == 26;
    f.layers.push_back(full ? latent_layer(i, LatentFormat::kBf16) : state_layer(i, 3 * 12288 * 2, 32 * 128 * 128 * 4));
  }
  return f;
}
Family qwen3_next() {
  Family f{"qwen3 next 80B", {}};
  for (int32_t i = 0; i < 48; ++i) {
    f.layers.push_back((i + 1) % 4 == 0 ? attention_layer(i, 2, 256, DType::kBF16)
                                        : state_layer(i, 3 * 8192 * 2, 32 * 128 * 128 * 4));
  }
  return f;
}
Family qwen4_exp() {
  Family f{"qwen4", {}};
  for (int32_t i = 0; i < 48; ++i) {
    if ((i + 1) % 4 != 0) {
      f.layers.push_back(state_layer(i, 3 * 10240 * 2, 48 * 128 * 128 * 4));
      continue;
    }
    f.layers.push_back(attention_layer(i, 2, 256, DType::kBF16));
    LayerSpec keys{CacheKind::kFull, i, {256, 0}};
    f.layers.push_back(compressed(keys, 4));
    f.layers.push_back(ring_layer(i, 4, qsa_ring(4, 0, 64), {256, 0}));
  }
  return f;
}
Family mamba2() {
  Family f{"mamba2 codestral 7B", {}};
  for (int32_t i = 0; i < 64; ++i) f.layers.push_back(state_layer(i, 3 * (8192 + 2 * 8 * 128) * 2, 128 * 64 * 128 * 4));
  return f;
}
std::vector<Family> families() {
  return {llama_1b(),     qwen3_8b(),  gemma3_1b(),   deepseek_v3(), deepseek_v32(), deepseek_v4(),
          deepseek_v41(), glm5_next(), kimi_linear(), qwen3_next(),  qwen4_exp(),    mamba2()};
}

Layout layout_of(const Family& f) {
  LayoutRequest request;
  request.layers = f.layers;
  request.cache_bytes = int64_t{80} << 30;
  request.granule = 2 << 20;
  request.num_spec = f.num_spec;
  Result<Layout> layout = make_layout(request);
  BZ_CHECK_MSG(layout.ok(), "{}: {}", f.name, layout.status().message());
  return *layout;
}

TEST(LayoutFamilies, WasteIsSmallOrExplained) {
  for (const Family& f : families()) {
    const Layout layout = layout_of(f);
    const RequestBytes typical = bytes_of_request(layout, 8192, f.num_spec);
    if (std::getenv("BZ_SHOW") != nullptr) std::printf("---- %s\n%s", f.name, describe(layout).c_str());
    EXPECT_LE(typical.waste(), 0.45) << f.name << "\n" << describe(layout);
    std::string notes;
    for (const std::string& note : layout.notes) notes += note + "\n";
    EXPECT_NE(notes.find("% of them waste"), std::string::npos);
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      const GroupLayout& group = layout.groups[g];
      const std::string name = fmt::format("group {}:", g);
      const bool wasteful = (layout.block_stride - group.used_bytes) * 10 > layout.block_stride;
      if (!wasteful && tokens_per_block(group.spec) <= kMaxPlainBlockTokens) continue;
      EXPECT_NE(notes.find(name), std::string::npos) << f.name << " " << name << "\n" << notes;
    }
  }
}

// What a request of 8,192 tokens takes, counted by hand.
TEST(LayoutFamilies, MemoryByHand) {
  EXPECT_EQ(bytes_of_request(layout_of(llama_1b()), 8192, 0).taken, int64_t{16} * 2 * 8 * 64 * 2 * 8192);
  EXPECT_EQ(bytes_of_request(layout_of(qwen3_8b()), 8192, 0).taken, int64_t{147456} * 8192);
  EXPECT_EQ(bytes_of_request(layout_of(deepseek_v3()), 8192, 0).taken, int64_t{61} * 1152 * 8192);
  // Twenty states of 73,728 + 2,097,152 bytes in five groups of four; seven latent layers in blocks of 1,024 tokens.
  EXPECT_EQ(bytes_of_request(layout_of(kimi_linear()), 8192, 0).taken, int64_t{5 + 8} * 4 * (73728 + 2097152));
}

TEST(LayoutFamilies, AMillionTokensFitTheTypes) {
  for (const Family& f : families()) {
    CacheConfig config = make_cache_config(layout_of(f), 3, 1 << 20);
    config.num_blocks = 200000;
    config.num_spec = f.num_spec;
    CacheManager m(config);
    const RowId row = m.admit();
    ASSERT_TRUE(m.can_append(row, 1 << 20)) << f.name;
    m.append(row, 1 << 20);
    for (size_t g = 0; g < config.groups.size(); ++g) {
      const GroupView view = m.tables().view(GroupId(static_cast<int32_t>(g)));
      if (view.form == SlotForm::kState) {
        EXPECT_NE(state_of(view, row, 0), kNullState);
      } else {
        EXPECT_GT(write_slot(view, row, (1 << 20) - 1, 1 << 20).value(), 0) << f.name << " group " << g;
      }
    }
  }
}

TEST(LayoutFamilies, AnotherGroupsViewAborts) {
  const Layout layout = layout_of(gemma3_1b());
  const CacheManager m(make_cache_config(layout, 3, 1024));
  const GroupView tables = m.tables().view(GroupId(0));
  check_same_group(tables, layout.groups[0].layers[0].k);
  EXPECT_DEATH(check_same_group(tables, layout.groups[3].layers[0].k), "group");  // F27
}

}  // namespace
}  // namespace bz::kv
