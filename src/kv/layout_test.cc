#include "kv/layout.h"

#include <gtest/gtest.h>

#include "kv/cache_manager.h"

namespace bz::kv {
namespace {

LayoutRequest smollm2(int64_t cache_bytes) {
  LayoutRequest request;
  for (int32_t i = 0; i < 30; ++i) request.layers.push_back(attention_layer(i, 3, 64, DType::kF16));
  request.cache_bytes = cache_bytes;
  return request;
}

TEST(Layout, SmolLM2ByHand) {
  const Result<Layout> result = make_layout(smollm2(256 << 20));
  ASSERT_TRUE(result.ok());
  const Layout& layout = *result;
  ASSERT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0].spec.block_size, 64);           // 64 * 768 = 48 KiB; 32 would be 24 KiB
  EXPECT_EQ(layout.block_stride, 30 * 64 * 2 * 3 * 64 * 2);  // 1,474,560
  EXPECT_EQ(layout.head_bytes, 1474560);                     // already a multiple of 4096
  EXPECT_EQ(layout.num_blocks, 182);                         // 1 + floor((268435456 - 1474560) / 1474560)
  EXPECT_EQ(layout.tail_bytes, 0);
  const LayerPages& pages = pages_of_spec(layout, 7);
  EXPECT_EQ(pages.k.offset, 7 * 49152);
  EXPECT_EQ(pages.v.offset, 7 * 49152 + 24576);
  EXPECT_EQ(pages.k.entry_bytes, 384);
  EXPECT_EQ(pages.page_bytes, 49152);
}

// Every byte of the budget is accounted for, planes never overlap, whatever the shapes.
TEST(Layout, InvariantsOverManyShapes) {
  int checked = 0;
  for (int32_t heads : {1, 2, 3, 8}) {
    for (int32_t dim : {16, 64, 72, 256}) {
      for (int32_t layers : {1, 2, 5}) {
        for (int32_t window : {0, 8, 512}) {
          for (int32_t block_size : {0, 16, 24, 256}) {
            for (int64_t granule : {int64_t{4096}, int64_t{2} << 20}) {
              for (int64_t mib : {1, 7, 300}) {
                LayoutRequest request{{}, mib << 20, granule, block_size};
                for (int32_t i = 0; i < layers; ++i) {
                  request.layers.push_back(window > 0 && i % 2 == 1
                                               ? windowed(attention_layer(i, heads, dim, DType::kF16), window)
                                               : attention_layer(i, heads, dim, DType::kF16));
                }
                const Result<Layout> result = make_layout(request);
                if (!result.ok()) continue;
                const Layout& l = *result;
                ++checked;
                ASSERT_EQ(l.head_bytes + l.body_bytes + l.tail_bytes, l.total_bytes);
                ASSERT_LE(l.total_bytes, request.cache_bytes);
                ASSERT_EQ(l.block_stride % kPageAlign, 0);
                ASSERT_EQ(l.head_bytes % granule, 0);
                ASSERT_EQ((l.body_bytes + l.tail_bytes) % granule, 0);
                ASSERT_EQ(l.body_bytes, int64_t{l.num_blocks - 1} * l.block_stride);
                for (const GroupLayout& g : l.groups) {
                  int64_t end = 0;
                  for (const LayerPages& p : g.layers) {
                    for (const PageView& v : {p.k, p.v}) {
                      ASSERT_EQ(v.offset % kPageAlign, 0);
                      ASSERT_GE(v.offset, end);
                      ASSERT_EQ(v.block_stride, l.block_stride);
                      end = v.offset + v.entry_bytes * v.block_size;
                    }
                  }
                  ASSERT_LE(end, g.used_bytes);
                  ASSERT_LE(g.used_bytes, l.block_stride);
                }
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(Layout, EndOnAGranuleWhereItCostsUnderOnePercent) {
  // One layer, 24 entries of 256 bytes in two planes: a stride of 12288 bytes, 3 granules of 4 KiB.
  LayoutRequest request{{attention_layer(0, 1, 128, DType::kF16)}, 10 << 20, 4096, 24};
  Layout l = make_layout(request).value();
  EXPECT_EQ(l.tail_bytes, 0);
  // 2 MiB granules: an aligned end would need a multiple of 512 blocks; few blocks fit, so a canary it is.
  request.granule = 2 << 20;
  l = make_layout(request).value();
  EXPECT_GT(l.tail_bytes, 0);
  EXPECT_LE(l.total_bytes, request.cache_bytes);
}

TEST(Layout, RefusesNonsense) {
  EXPECT_FALSE(make_layout({{}, 1 << 20}).ok());
  EXPECT_FALSE(make_layout({{LayerSpec{}}, 1 << 20}).ok());
  EXPECT_FALSE(make_layout({{windowed(attention_layer(0, 1, 64, DType::kF16), 0)}, 1 << 20}).ok());
  EXPECT_FALSE(make_layout({{attention_layer(0, 1, 64, DType::kF16)}, 1 << 20, 1000}).ok());
  const Result<Layout> small = make_layout(smollm2(1 << 20));
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(small.status().message().find("need at least"), std::string::npos);
  // What it says suffices does suffice.
  EXPECT_TRUE(make_layout(smollm2(1474560 * 3)).ok());
}

// GLM-5.3 in small: latents, their pooled keys and the open pool's tail, and states as large as many tokens.
LayoutRequest states_and_latents() {
  LayoutRequest request{{}, 64 << 20};
  for (int32_t i = 0; i < 8; ++i) {
    if (i % 4 != 3) {
      request.layers.push_back(state_layer(i, 3 * 1024, 128 << 10));
      continue;
    }
    request.layers.push_back({CacheKind::kFull, i, {1024, 0}});
    request.layers.push_back(compressed(latent_layer(i, LatentFormat::kIndex), 4));
    request.layers.push_back(ring_layer(i, 4, 4, {256, 256}));
  }
  return request;
}

// A small cache beside a large one takes no slabs of its own: it lies in the other's blocks, by the other's table.
TEST(Layout, SmallCachesLieInTheBlocksOfLargeOnes) {
  const Layout layout = make_layout(states_and_latents()).value();
  int32_t readers = 0;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupLayout& group = layout.groups[g];
    const CacheKind kind = group.spec.kind;
    EXPECT_EQ(group.spec.table_of == kOwnTable, kind == CacheKind::kFull || kind == CacheKind::kState) << g;
    if (group.spec.table_of == kOwnTable) continue;
    ++readers;
    const GroupLayout& owner = layout.groups[static_cast<size_t>(group.spec.table_of)];
    EXPECT_TRUE(can_share_table(owner.spec, group.spec));
    int64_t end = owner.used_bytes;
    for (const LayerPages& p : group.layers) {
      EXPECT_GE(p.k.offset, end);
      EXPECT_GE(p.v.offset, p.k.offset + p.k.entry_bytes * p.k.block_size);
      end = p.k.offset + p.page_bytes;
    }
    EXPECT_LE(end, table_bytes(layout, static_cast<size_t>(group.spec.table_of)));
    EXPECT_LE(end, layout.block_stride);
  }
  EXPECT_EQ(readers, 2);
  EXPECT_LE(bytes_of_request(layout, 8192, 0).waste(), kExplainedWaste);
  CacheManager m(make_cache_config(layout, 3, 8192));
  const RowId row = m.admit();
  m.append(row, 8192);
  EXPECT_EQ(m.num_used_blocks() * layout.block_stride, bytes_of_request(layout, 8192, 0).taken);
}

TEST(Layout, WhatCannotShareATableHasItsOwn) {
  GroupSpec full{CacheKind::kFull, 16, 0, {}}, pooled{CacheKind::kCompressed, 4, 0, {}, 4};
  GroupSpec ring{CacheKind::kRing, 8, 0, {}, 4}, state{CacheKind::kState, 1, 0, {}, 1, true};
  EXPECT_TRUE(can_share_table(full, pooled));
  EXPECT_TRUE(can_share_table(state, ring));
  EXPECT_FALSE(can_share_table(full, ring));
  EXPECT_FALSE(can_share_table(ring, ring));  // a hit is cut to multiples of its own R only
  EXPECT_FALSE(can_share_table(pooled, full));
  GroupSpec window{CacheKind::kSlidingWindow, 16, 64, {}};
  EXPECT_FALSE(can_share_table(window, pooled));
  pooled.block_size = 8;  // 32 tokens
  EXPECT_FALSE(can_share_table(full, pooled));
  ring.zeroed = true;  // and nobody would zero it
  EXPECT_FALSE(can_share_table(state, ring));
  CacheConfig config;
  config.groups = {full, pooled};
  config.groups[1].table_of = 0;
  config.max_seq_len = 64;
  EXPECT_DEATH(table_shapes(config), "can_share_table");
}

// One state of 30 MB beside keys of which 2,048 tokens are 256 KiB: nothing fits that slab.
TEST(Layout, WasteThatRemainsIsExplained) {
  const LayoutRequest request{{state_layer(0, 30 << 20, 0), {CacheKind::kFull, 1, {128, 0}}}, int64_t{2} << 30};
  const Layout layout = make_layout(request).value();
  EXPECT_GT(bytes_of_request(layout, 8192, 0).waste(), kExplainedWaste);
  std::string text;
  for (const std::string& note : layout.notes) text += note + "\n";
  EXPECT_NE(text.find("% of the waste is group 1's (full): 4 slabs for 1048576 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("of 131072 tokens it would be"), std::string::npos) << text;
}

TEST(Layout, AnotherGroupsViewAborts) {
  LayoutRequest request{{}, 64 << 20};
  for (int32_t i = 0; i < 12; ++i) {
    request.layers.push_back(i % 6 == 5 ? attention_layer(i, 1, 256, DType::kBF16)
                                        : windowed(attention_layer(i, 1, 256, DType::kBF16), 512));
  }
  const Layout layout = make_layout(request).value();
  const CacheManager m(make_cache_config(layout, 3, 1024));
  const GroupView tables = m.tables().view(GroupId(0));
  check_same_group(tables, layout.groups[0].layers[0].k);
  EXPECT_DEATH(check_same_group(tables, layout.groups.back().layers[0].k), "group");  // F27
}

}  // namespace
}  // namespace bz::kv
