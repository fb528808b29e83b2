#include "formats/tokenizer.h"

#include <algorithm>
#include <optional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/byte_alphabet.h"
#include "formats/gguf_writer.h"
#include "formats/pre_tokenizer.h"
#include "formats/stream_decoder.h"

namespace bz::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes, then `words` made by merges, then control and user-defined tokens.
struct TestVocabulary {
  std::vector<std::string> tokens{byte_alphabet().begin(), byte_alphabet().end()};
  std::vector<int32_t> types = std::vector<int32_t>(256, 1);
  std::vector<std::string> merges;

  int32_t add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right, TokenType::kNormal);
  }
  int32_t add(const std::string& text, TokenType type) {
    tokens.push_back(text);
    types.push_back(static_cast<int32_t>(type));
    return static_cast<int32_t>(tokens.size()) - 1;
  }
  GgufWriter writer(const std::string& pre = "gpt-2") const {
    GgufWriter w;
    w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", std::string_view(pre));
    w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
    w.add("tokenizer.ggml.merges", merges);
    return w;
  }
};

Result<std::unique_ptr<Tokenizer>> load(const GgufWriter& writer) {
  const auto bytes = writer.bytes();  // gone when the tokenizer is used: it owns what it needs
  auto file = GgufFile::parse(bytes, "m.gguf");
  if (!file.ok()) return file.status();
  return load_tokenizer(*file);
}
std::unique_ptr<Tokenizer> load_ok(const GgufWriter& writer) {
  auto tokenizer = load(writer);
  BZ_CHECK_MSG(tokenizer.ok(), "{}", tokenizer.status().message());
  return std::move(tokenizer).value();
}

TEST(Tokenizer, MergesByRankThenLeftmost) {
  TestVocabulary v;
  const int32_t bc = v.add_merge("b", "c");
  const int32_t ab = v.add_merge("a", "b");
  const int32_t aa = v.add_merge("a", "a");
  const int32_t bcd = v.add_merge("bc", "d");
  auto t = load_ok(v.writer());
  EXPECT_THAT(t->encode("abc"), ElementsAre('a', bc)) << "the lower rank goes first, wherever it stands";
  EXPECT_THAT(t->encode("abd"), ElementsAre(ab, 'd'));
  EXPECT_THAT(t->encode("aaa"), ElementsAre(aa, 'a')) << "of equal ranks, the leftmost";
  EXPECT_THAT(t->encode("aaaa"), ElementsAre(aa, aa));
  EXPECT_THAT(t->encode("abcd"), ElementsAre('a', bcd));
  EXPECT_THAT(t->encode(""), ElementsAre());
}

// The heap and the scan are two implementations of one definition.
TEST(Tokenizer, LongPiecesMergeLikeShortOnes) {
  TestVocabulary v;
  std::mt19937 random(3);
  std::vector<std::string> words = {"a", "b", "c"};
  for (int i = 0; i < 40; ++i) {
    const std::string left = words[random() % words.size()];
    const std::string right = words[random() % words.size()];
    if (std::find(words.begin(), words.end(), left + right) != words.end()) continue;
    v.add_merge(left, right);
    words.push_back(left + right);
  }
  auto t = load_ok(v.writer());
  // The definition, word for word.
  const auto naive = [&](const std::string& piece) {
    std::vector<std::string> symbols;
    for (const char c : piece) symbols.emplace_back(1, c);
    for (;;) {
      size_t best_rank = v.merges.size();
      size_t best_at = 0;
      for (size_t at = 0; at + 1 < symbols.size(); ++at) {
        const auto rule = std::find(v.merges.begin(), v.merges.end(), symbols[at] + " " + symbols[at + 1]);
        const auto rank = static_cast<size_t>(rule - v.merges.begin());
        if (rank < best_rank) {
          best_rank = rank;
          best_at = at;
        }
      }
      if (best_rank == v.merges.size()) break;
      symbols[best_at] += symbols[best_at + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : symbols) {
      ids.push_back(static_cast<int32_t>(std::find(v.tokens.begin(), v.tokens.end(), symbol) - v.tokens.begin()));
    }
    return ids;
  };
  for (int round = 0; round < 200; ++round) {
    std::string piece(1 + random() % 150, 'a');
    for (char& c : piece) c = static_cast<char>('a' + random() % 3);
    ASSERT_EQ(t->encode(piece), naive(piece)) << piece;
  }
}

TEST(Tokenizer, SpecialTokensMatchLongestAndOnlyWhenAsked) {
  TestVocabulary v;
  const int32_t start = v.add("<|s|>", TokenType::kControl);
  const int32_t longer = v.add("<|s|>>", TokenType::kControl);
  const int32_t user = v.add("<u>", TokenType::kUserDefined);
  auto t = load_ok(v.writer());
  EXPECT_THAT(t->encode("<|s|>x<|s|>>", {.parse_special = true}), ElementsAre(start, 'x', longer));
  EXPECT_THAT(t->encode("a<u>b", {.parse_special = false}), ElementsAre('a', user, 'b'));
  EXPECT_EQ(t->encode("<|s|>", {.parse_special = false}).size(), 5u);
  EXPECT_EQ(t->encode("<|s", {.parse_special = true}).size(), 3u);
  EXPECT_TRUE(t->is_control(start));
  EXPECT_FALSE(t->is_control(user));
  const std::vector<int32_t> ids = {'a', start, user};
  EXPECT_EQ(t->decode(ids), "a<|s|><u>");
  EXPECT_EQ(t->decode(ids, /*skip_control=*/true), "a<u>");
}

TEST(Tokenizer, AddsBosOnlyIfTheModelWantsIt) {
  TestVocabulary v;
  const int32_t bos = v.add("<s>", TokenType::kControl);
  const auto with = [&](const char* pre, std::optional<bool> add_bos) {
    GgufWriter w = v.writer(pre);
    w.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos));
    if (add_bos) w.add("tokenizer.ggml.add_bos_token", *add_bos);
    return load_ok(w);
  };
  EXPECT_THAT(with("gpt-2", {})->encode("x"), ElementsAre('x'));
  EXPECT_THAT(with("gpt-2", true)->encode("x"), ElementsAre(bos, 'x'));
  EXPECT_THAT(with("gpt-2", true)->encode("x", {.add_bos = false}), ElementsAre('x'));
  EXPECT_THAT(with("llama-bpe", {})->encode("x"), ElementsAre(bos, 'x'));
  EXPECT_THAT(with("llama-bpe", false)->encode("x"), ElementsAre('x'));
  EXPECT_EQ(with("gpt-2", {})->bos(), bos);
}

TEST(Tokenizer, EndTokensByIdAndByName) {
  TestVocabulary v;
  const int32_t named = v.add("<|im_end|>", TokenType::kControl);
  const int32_t other = v.add("<odd end>", TokenType::kControl);
  v.add("<|eot_id|>", TokenType::kNormal);  // not markup here: just text that a user may type
  GgufWriter w = v.writer();
  w.add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(other));
  auto t = load_ok(w);
  EXPECT_THAT(t->end_ids(), ElementsAre(named, other));
  EXPECT_TRUE(t->is_end(named));
  EXPECT_FALSE(t->is_end('a'));
  EXPECT_EQ(t->eos(), other);
}

std::vector<std::string> split(const char* pre_name, const std::string& text) {
  auto pre = PreTokenizer::create(*find_pre_tokenizer(pre_name));
  std::vector<std::string_view> pieces;
  pre->split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(PreTokenizer, CutsAsEachModelDoes) {
  EXPECT_THAT(split("gpt-2", "It's 123  ok!\n x"), ElementsAre("It", "'s", " 123", " ", " ok", "!", "\n", " x"));
  EXPECT_THAT(split("smollm", "It's 123  ok  7"), ElementsAre("It", "'s", " ", "1", "2", "3", " ", " ok", "  ", "7"));
  EXPECT_THAT(split("llama-bpe", "12345 I'LL(x)\n\n"), ElementsAre("123", "45", " I", "'LL", "(x", ")\n\n"));
  EXPECT_THAT(split("qwen2", "12 a  \n b"), ElementsAre("1", "2", " a", "  \n", " b"));
  EXPECT_THAT(split("gpt-2", "é日本 \u3000x"), ElementsAre("é日本", " ", "\u3000", "x"));
}

TEST(PreTokenizer, KeepsEveryByteOfAnything) {
  std::mt19937 random(5);
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    for (int round = 0; round < 300; ++round) {
      std::string text(random() % 60, ' ');
      for (char& c : text) c = static_cast<char>(random() % 3 ? random() % 128 : random() % 256);
      std::string joined;
      for (const std::string& piece : split(name, text)) joined += piece;
      ASSERT_EQ(joined, text);
    }
    EXPECT_THAT(split(name, "a\xff\xfe b"), ElementsAre("a", "\xff\xfe", " b"));
  }
}

// No stack or match limit may be hit by long runs, and time stays linear.
TEST(PreTokenizer, LongRunsAreOnePiece) {
  const size_t n = 1 << 20;
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    EXPECT_EQ(split(name, std::string(n, 'a')).size(), 1u) << name;
    EXPECT_EQ(split(name, std::string(n, ' ')).size(), 1u) << name;
    EXPECT_EQ(split(name, std::string(n, '!')).size(), 1u) << name;
    EXPECT_EQ(split(name, std::string(n, ' ') + "x").size(), 2u) << name;
  }
}

TEST(Tokenizer, KeepsBytesThatAreNotUtf8) {
  auto t = load_ok(TestVocabulary{}.writer());
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = static_cast<char>(random() % 256);
    ASSERT_EQ(t->decode(t->encode(text, {.parse_special = true})), text);
  }
}

TEST(Tokenizer, Qwen2ComposesFirst) {
  auto t = load_ok(TestVocabulary{}.writer("qwen2"));
  EXPECT_EQ(t->decode(t->encode("e\u0301 plain \xff e\u0301")), "\u00e9 plain \xff \u00e9");
  auto plain = load_ok(TestVocabulary{}.writer("gpt-2"));
  EXPECT_EQ(plain->decode(plain->encode("e\u0301")), "e\u0301");
}

TEST(Tokenizer, DropsBytesWithoutAToken) {
  TestVocabulary v;
  v.tokens[1] = "unused";
  auto t = load_ok(v.writer());
  EXPECT_THAT(t->encode("a\x01z"), ElementsAre('a', 'z'));
}

void expect_error(const GgufWriter& writer, const std::string& part) {
  const Status status = load(writer).status();
  ASSERT_FALSE(status.ok()) << "expected an error with: " << part;
  EXPECT_THAT(status.message(), testing::StartsWith("m.gguf: "));
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Tokenizer, RefusesBadFiles) {
  expect_error(GgufWriter{}, "key 'tokenizer.ggml.model' is missing");
  expect_error(GgufWriter().add("tokenizer.ggml.model", "llama"), "is 'llama', which is not supported yet");
  expect_error(TestVocabulary{}.writer("new-thing"), "'new-thing', which is not supported yet (supported: gpt-2,");
  TestVocabulary v;
  v.types.pop_back();
  expect_error(v.writer(), "has 255 entries for 256 tokens");
  v.types.push_back(9);
  expect_error(v.writer(), "holds 9 for token 255");
  v.types.back() = 1;
  v.merges = {"a b"};
  expect_error(v.writer(), "has 'a b' at index 0: a token of it is not in the vocabulary");
  v.merges = {"ab"};
  expect_error(v.writer(), "expected two tokens");
  v.merges = {""};
  expect_error(v.writer(), "expected two tokens");
  GgufWriter w = TestVocabulary{}.writer();
  expect_error(w.add("tokenizer.ggml.eos_token_id", uint32_t{256}), "key 'tokenizer.ggml.eos_token_id' is 256");
}

TEST(StreamDecoder, EmitsWholeCharactersOnly) {
  TestVocabulary v;
  const int32_t end = v.add("<|im_end|>", TokenType::kControl);
  auto t = load_ok(v.writer());
  StreamDecoder decoder(*t);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xf0), "");
  EXPECT_EQ(decoder.push(0x9f), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(decoder.push(end), "");
  EXPECT_EQ(decoder.push(0xe2), "");
  EXPECT_EQ(decoder.push('b'),
            "\xef\xbf\xbd"
            "b")
      << "a broken beginning is one U+FFFD";
  EXPECT_EQ(decoder.push(0xff), "\xef\xbf\xbd");
  EXPECT_EQ(decoder.push(0xc3), "");
  EXPECT_EQ(decoder.flush(), "\xef\xbf\xbd");
  EXPECT_EQ(decoder.flush(), "");
  StreamDecoder all(*t, /*skip_control=*/false);
  EXPECT_EQ(all.push(end), "<|im_end|>");
}

}  // namespace
}  // namespace bz::formats
