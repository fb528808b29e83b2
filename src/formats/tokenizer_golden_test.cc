// The tokenizer of a real model against the answers of independent implementations (tests/golden/README.md).
#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/stream_decoder.h"
#include "formats/test_files.h"
#include "formats/tokenizer.h"

namespace bz::formats {
namespace {

using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class TokenizerGolden : public testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::open(smollm2_path());
    ASSERT_TRUE(file.ok()) << file.status().message() << kFetchHint;
    auto tokenizer = load_tokenizer(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    golden_ = json::parse(read_test_file(golden_path("smollm2/tokenize.json")));
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  json golden_;
};

TEST_F(TokenizerGolden, EncodesAsTheReference) {
  ASSERT_GE(golden_["cases"].size(), 300u);
  for (const json& c : golden_["cases"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, {.parse_special = true}), c["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer_->encode(text), c["ids_plain"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_F(TokenizerGolden, DecodesAsTheReference) {
  for (const json& c : golden_["cases"]) {
    const std::string text =
        c.contains("decoded_hex") ? from_hex(c["decoded_hex"].get<std::string>()) : c["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->decode(c["ids"].get<std::vector<int32_t>>()), text);
    EXPECT_EQ(tokenizer_->decode(c["ids_plain"].get<std::vector<int32_t>>()), text);
  }
  for (const json& c : golden_["decode"]) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->decode(ids), from_hex(c["hex"].get<std::string>()));
    EXPECT_EQ(tokenizer_->decode(ids, true), from_hex(c["hex_without_special"].get<std::string>()));
  }
}

TEST_F(TokenizerGolden, StreamsTheSameText) {
  for (const json& c : golden_["cases"]) {
    StreamDecoder decoder(*tokenizer_, /*skip_control=*/false);
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    text += decoder.flush();
    // Bytes that the vocabulary lacks may leave broken characters behind.
    if (c.contains("decoded_hex")) continue;
    EXPECT_EQ(text, c["text"].get<std::string>());
  }
}

TEST_F(TokenizerGolden, KnowsItsSpecialTokens) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  EXPECT_EQ(tokenizer_->end_ids(), (std::vector<int32_t>{0, 2}));
  EXPECT_FALSE(tokenizer_->wants_bos());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Printed for people; the bounds are loose, since sanitizers and busy machines are slow.
TEST_F(TokenizerGolden, IsFast) {
  std::string text;
  while (text.size() < 2'000'000) {
    for (const json& c : golden_["cases"]) text += c["text"].get<std::string>() + "\n";
  }
  auto start = std::chrono::steady_clock::now();
  const size_t count = tokenizer_->encode(text).size();
  const double encode_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  auto file = GgufFile::open(smollm2_path());
  const double open_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  ASSERT_TRUE(load_tokenizer(*file).ok());
  const double load_seconds = seconds_since(start);
  fmt::print("open {:.1f} ms, load {:.1f} ms, encode {:.1f} MB/s ({} tokens)\n", open_seconds * 1e3, load_seconds * 1e3,
             static_cast<double>(text.size()) / encode_seconds / 1e6, count);
  EXPECT_LT(load_seconds, 2.0);
  EXPECT_LT(encode_seconds, 10.0);
}

}  // namespace
}  // namespace bz::formats
