#include "engine/text_stream.h"

#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "formats/byte_tokenizer.h"

namespace bz::engine {
namespace {

struct Streamed {
  std::vector<std::string> deltas;  // after each push, then after finish
  bool stopped = false;

  std::string joined() const {
    std::string all;
    for (const auto& delta : deltas) all += delta;
    return all;
  }
};

// Pushes `text` in pieces of `piece` bytes.
Streamed stream(std::string_view text, std::vector<std::string> stops, size_t piece) {
  static const auto tokenizer = formats::byte_tokenizer();
  TextStream s(*tokenizer, std::move(stops));
  Streamed out;
  for (size_t at = 0; at < text.size() && !s.stopped(); at += piece) {
    std::vector<int32_t> tokens;
    for (const char c : text.substr(at, piece)) tokens.push_back(tokenizer->encode(std::string(1, c)).front());
    out.deltas.emplace_back();
    s.push(tokens, out.deltas.back());
  }
  out.deltas.emplace_back();
  s.finish(out.deltas.back());
  out.stopped = s.stopped();
  return out;
}

TEST(TextStream, WithoutStopsTextComesAtOnce) {
  const Streamed s = stream("abc", {}, 1);
  EXPECT_EQ(s.deltas, (std::vector<std::string>{"a", "b", "c", ""}));
  EXPECT_FALSE(s.stopped);
}

TEST(TextStream, ACharacterOfSeveralTokensComesWhole) {
  const Streamed s = stream("\xf0\x9f\x98\x80!", {}, 1);
  EXPECT_EQ(s.deltas, (std::vector<std::string>{"", "", "", "\xf0\x9f\x98\x80", "!", ""}));
}

TEST(TextStream, ABrokenCharacterAtTheEndIsReplaced) {
  EXPECT_EQ(stream("a\xf0\x9f", {}, 1).joined(), "a\xef\xbf\xbd");
}

TEST(TextStream, ControlTokensShowNothing) {
  const auto tokenizer = formats::byte_tokenizer();
  TextStream s(*tokenizer, {});
  std::string out;
  const std::vector<int32_t> tokens{256};
  s.push(tokens, out);
  s.finish(out);
  EXPECT_EQ(out, "");
}

TEST(TextStream, AStopStringAcrossTokensNeverComesOut) {
  const Streamed s = stream("one END two", {" END"}, 1);
  EXPECT_EQ(s.joined(), "one");
  EXPECT_TRUE(s.stopped);
}

// min_tokens: neither a stop string inside the first tokens nor one that begins there stops.
TEST(TextStream, TheFirstTokensAreNotSearched) {
  const auto tokenizer = formats::byte_tokenizer();
  TextStream s(*tokenizer, {"ab"}, true, 3);
  std::string out;
  for (const char c : std::string("abababab")) {
    const auto ids = tokenizer->encode(std::string(1, c));
    s.push(ids, out);
  }
  EXPECT_EQ(out, "abab");
  EXPECT_TRUE(s.stopped());
}

TEST(TextStream, ABeginningOfAStopStringIsHeldBackAndThenReleased) {
  const Streamed s = stream("xENy", {"END"}, 1);
  EXPECT_EQ(s.deltas, (std::vector<std::string>{"x", "", "", "ENy", ""}));
  EXPECT_FALSE(s.stopped);
}

TEST(TextStream, AHeldBackBeginningComesOutAtTheEnd) {
  const Streamed s = stream("xEN", {"END"}, 1);
  EXPECT_EQ(s.joined(), "xEN");
  EXPECT_FALSE(s.stopped);
}

TEST(TextStream, TheStopStringCompleteFirstWins) {
  EXPECT_EQ(stream("abcdef", {"cdef", "d"}, 6).joined(), "abc");
  EXPECT_EQ(stream("abcdef", {"cde", "bcde"}, 6).joined(), "a");
}

TEST(TextStream, AnOverlappingBeginningIsNotLost) {
  EXPECT_EQ(stream("aab", {"ab"}, 1).joined(), "a");
  EXPECT_EQ(stream("\n\n\nx", {"\n\nx"}, 1).joined(), "\n");
}

TEST(TextStream, AStopStringMayEndInsideWhatATokenAdds) {
  const Streamed s = stream("hello world", {"lo wo"}, 4);
  EXPECT_EQ(s.joined(), "hel");
  EXPECT_TRUE(s.stopped);
}

TEST(TextStream, NothingComesAfterTheStop) {
  const auto tokenizer = formats::byte_tokenizer();
  TextStream s(*tokenizer, {"b"});
  std::string out;
  s.push(tokenizer->encode("abc"), out);
  s.push(tokenizer->encode("def"), out);
  s.finish(out);
  EXPECT_EQ(out, "a");
}

// What comes out must not depend on the grouping. Texts over few letters, so that stops nearly match all the time.
TEST(TextStream, GroupingDoesNotMatter) {
  std::mt19937 random(7);
  const auto letters = [&](size_t max) {
    std::string text;
    for (size_t n = 1 + random() % max; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string text = letters(24);
    const std::vector<std::string> stops{letters(5) + "b", letters(4)};
    const Streamed whole = stream(text, stops, text.size());
    for (const size_t piece : {1, 2, 3, 5}) {
      const Streamed pieces = stream(text, stops, piece);
      EXPECT_EQ(pieces.joined(), whole.joined()) << text << " | " << stops[0] << " | " << stops[1];
      EXPECT_EQ(pieces.stopped, whole.stopped);
    }
  }
}

}  // namespace
}  // namespace bz::engine
