#include "cli/inspect.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/gguf_writer.h"

namespace bz::cli {
namespace {

using formats::GgufFile;
using formats::GgufWriter;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::vector<std::byte> example() {
  GgufWriter w;
  w.add("general.architecture", "llama").add("bad", "a\xff\nb").add("nan", std::numeric_limits<float>::quiet_NaN());
  w.add("ids", std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  w.add("names", std::vector<std::string>{"one", "tw\x01o"});
  w.add_tensor("embed", {4, 2}, std::vector<float>(8));
  w.add_tensor("packed", {32}, DType::kQ4_0, std::vector<std::byte>(18));
  w.add_tensor_info("strange", {8}, 9999, 96);
  std::vector<std::byte> bytes = w.bytes();
  bytes.resize(bytes.size() + 128);
  return bytes;
}

TEST(Inspect, TextShowsEveryPart) {
  const auto bytes = example();
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string text = inspect_text(*file);
  EXPECT_THAT(text, HasSubstr("GGUF version 3, architecture llama"));
  EXPECT_THAT(text, ContainsRegex("bad +string +a\\\\xff\\\\x0ab\n"));
  EXPECT_THAT(text, ContainsRegex("ids +i32\\[8\\] +\\[1,2,3,4,5,6,\\.\\.\\.\\]"));
  EXPECT_THAT(text, ContainsRegex("embed +F32 +\\[4, 2\\] +32 bytes"));
  EXPECT_THAT(text, ContainsRegex("packed +Q4_0 +\\[32\\] +18 bytes"));
  EXPECT_THAT(text, ContainsRegex("strange +unknown\\(9999\\)"));
  EXPECT_THAT(text, HasSubstr("cannot be computed with"));
}

TEST(Inspect, JsonIsValidWhateverTheFileHolds) {
  const auto bytes = example();
  auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto json = nlohmann::json::parse(inspect_json(*file));
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["metadata"]["ids"]["count"], 8);
  EXPECT_EQ(json["metadata"]["ids"]["first"].size(), 6u);
  EXPECT_EQ(json["metadata"]["names"]["first"][1], "tw\\x01o");
  EXPECT_TRUE(json["metadata"]["nan"]["value"].is_null());
  EXPECT_EQ(json["tensors"].size(), 3u);
  EXPECT_EQ(json["tensors"][0]["shape"], (std::vector<int>{4, 2}));
  EXPECT_FALSE(json["tensors"][2]["supported"]);
  EXPECT_EQ(json["totals"]["Q4_0"]["bytes"], 18);
}

TEST(Inspect, BadFilesAreOneLine) {
  const Status status = inspect({.path = "/nonexistent/m.gguf"});
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/m.gguf: no such file"));
  EXPECT_EQ(status.exit_code(), 2);
}

}  // namespace
}  // namespace bz::cli
