#include "engine/cache_size.h"

#include <gtest/gtest.h>

#include "base/math.h"

namespace bz::engine {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A model on a GPU: its layout of some budget, and what the cache is for.
struct Shape {
  kv::LayoutRequest request;
  kv::Layout layout;
  kv::CacheConfig config;

  Shape(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t max_num_seqs, int32_t max_model_len,
        int32_t block_size = 0) {
    for (int32_t i = 0; i < layers; ++i)
      request.layers.push_back(kv::attention_layer(i, kv_heads, head_dim, DType::kBF16));
    request.cache_bytes = kGiB / 2;
    request.granule = 2 << 20;
    request.block_size = block_size;
    layout = kv::make_layout(request).value();
    config = kv::make_cache_config(layout, max_num_seqs + 1, max_model_len);
  }
  kv::Layout layout_for(int64_t free_bytes) {
    request.cache_bytes = default_cache_bytes(layout, config, free_bytes);
    return kv::make_layout(request).value();
  }
};

Shape llama_8b(int32_t max_num_seqs, int32_t max_model_len) { return {32, 8, 128, max_num_seqs, max_model_len}; }

TEST(CacheSize, TakesTheShareWhereMoreCouldBeUsed) {
  Shape shape = llama_8b(256, 131072);  // 4 TiB
  for (const int64_t free_bytes : {20 * kGiB, 100 * kGiB + 12345}) {
    const kv::Layout layout = shape.layout_for(free_bytes);
    const double share = kCacheShare * static_cast<double>(free_bytes);
    EXPECT_LE(static_cast<double>(layout.total_bytes), share);
    EXPECT_GT(static_cast<double>(layout.total_bytes), share - 4 * (2 << 20));
    EXPECT_EQ(shape.request.cache_bytes % shape.request.granule, 0);
  }
}

// Whatever the stride: make_layout rounds blocks away so that the last one ends with a granule.
TEST(CacheSize, HoldsEveryRequestAtItsLongestAndNotMuchMore) {
  for (const int32_t layers : {1, 3, 30}) {
    for (const int32_t head_dim : {64, 72, 128}) {
      for (const int32_t block_size : {0, 5, 16}) {
        for (const int32_t seqs : {1, 32, 300}) {
          Shape shape(layers, 3, head_dim, seqs, 2000, block_size);
          const kv::Layout layout = shape.layout_for(1000 * kGiB);
          const int64_t needed = int64_t{seqs} * ceil_div(2000, layout.groups[0].spec.block_size);
          EXPECT_GE(layout.num_blocks - 1, needed) << layers << " layers of " << head_dim << " for " << seqs;
          const int64_t more = needed / 50 + 2 + 2 * shape.request.granule / layout.block_stride;
          EXPECT_LE(layout.num_blocks - 1, needed + more) << layers << " layers of " << head_dim << " for " << seqs;
        }
      }
    }
  }
}

TEST(CacheSize, ALongRequestMayTakeMoreThanTheShare) {
  constexpr int64_t kLongest = 16 * kGiB;  // 131,072 tokens of 128 KiB
  Shape shape = llama_8b(32, 131072);
  const auto fits = [&](int64_t free_bytes) {
    const kv::Layout layout = shape.layout_for(free_bytes);
    EXPECT_LE(layout.total_bytes, free_bytes - kLeftFree);
    return layout.body_bytes >= kLongest;
  };
  EXPECT_TRUE(fits(kLongest + kLongest / 10));   // 0.9 of it are 15.8 GiB
  EXPECT_FALSE(fits(kLongest + kLeftFree / 2));  // too little would be left: the share, as anywhere
}

TEST(CacheSize, OfNothingThereIsNoLayout) {
  const Shape shape = llama_8b(1, 1024);
  for (const int64_t free_bytes : {int64_t{0}, int64_t{3} << 20}) {
    kv::LayoutRequest request = shape.request;
    request.cache_bytes = default_cache_bytes(shape.layout, shape.config, free_bytes);
    EXPECT_FALSE(kv::make_layout(request).ok()) << free_bytes;
  }
}

}  // namespace
}  // namespace bz::engine
