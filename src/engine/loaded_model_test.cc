#include "engine/loaded_model.h"

#include <unistd.h>
#include <filesystem>

#include <gtest/gtest.h>

#include "models/tiny_llama.h"

namespace bz::engine {
namespace {

std::unique_ptr<LoadedModel> load_tiny(const char* device, int64_t kv_cache_bytes) {
  const std::string path = testing::TempDir() + "loaded_model_test." + std::to_string(getpid());
  models::TinyLlama tiny;
  tiny.vocab_size = 320;
  BZ_CHECK(tiny.writer().write(path).ok());
  LoadOptions options;
  options.model_path = path;
  options.device = {device, 1};
  options.kv_cache_bytes = kv_cache_bytes;
  auto model = LoadedModel::load(options).value();
  std::filesystem::remove(path);  // the mapping holds the file
  return model;
}

// Where the device does not say what it has free. What was taken stands in the options, as a fault record keeps it.
TEST(CacheBytes, AreFixedOnCpuAndNullDevice) {
  for (const char* device : {"cpu", "null"}) {
    const auto model = load_tiny(device, 0);
    EXPECT_FALSE(model->device().free_bytes());
    EXPECT_EQ(model->plan().options.kv_cache_bytes, kDefaultCacheBytes);
    EXPECT_LE(model->plan().layout.total_bytes, kDefaultCacheBytes);
    EXPECT_GT(model->plan().layout.total_bytes, kDefaultCacheBytes * 99 / 100);
    EXPECT_EQ(model->core().stats().blocks_total, model->plan().layout.num_blocks - 1);
  }
}

TEST(CacheBytes, AreThoseAskedFor) {
  constexpr int64_t kBytes = int64_t{3} << 20;
  const auto model = load_tiny("cpu", kBytes);
  EXPECT_EQ(model->plan().options.kv_cache_bytes, kBytes);
  EXPECT_LE(model->plan().layout.total_bytes, kBytes);
  EXPECT_GT(model->plan().layout.total_bytes, kBytes * 98 / 100);
}

}  // namespace
}  // namespace bz::engine
