#include "cli/plan_text.h"

#include <gtest/gtest.h>

namespace bz::cli {
namespace {

TEST(PlanText, AccountsForEveryByte) {
  kv::LayoutRequest request{{}, 64 << 20};
  for (int32_t i = 0; i < 30; ++i) request.layers.push_back(kv::attention_layer(i, 3, 64, DType::kF16));
  const kv::Layout layout = kv::make_layout(request).value();
  const std::string text = describe(layout);
  EXPECT_NE(
      text.find("group 0: full, 30 layers, blocks of 64 entries, page 49152 bytes, slab 1474560 + waste 0 bytes\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("null block and its guard granules: 1474560 bytes\n"), std::string::npos) << text;
  EXPECT_NE(text.find("total: " + std::to_string(layout.total_bytes) + " bytes\n"), std::string::npos) << text;
}

TEST(PlanText, AGroupThatSharesATableSaysWhose) {
  kv::LayoutRequest request{{{kv::CacheKind::kFull, 0, {1024, 0}}}, 64 << 20};
  request.layers.push_back(kv::compressed(kv::latent_layer(0, kv::LatentFormat::kIndex), 4));
  const std::string text = describe(kv::make_layout(request).value());
  EXPECT_NE(text.find("group 1: compressed, 1 layers"), std::string::npos) << text;
  EXPECT_NE(text.find(" bytes of group 0's\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace bz::cli
