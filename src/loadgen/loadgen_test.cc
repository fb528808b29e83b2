#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "loadgen/http_stream.h"
#include "loadgen/prompts.h"
#include "loadgen/report.h"

namespace bz::loadgen {
namespace {

using State = ResponseReader::State;
using testing::HasSubstr;

TEST(Url, Parts) {
  const Endpoint a = parse_url("http://localhost:8000").value();
  EXPECT_EQ(std::tie(a.host, a.port, a.path), std::make_tuple("localhost", "8000", ""));
  const Endpoint b = parse_url("http://[::1]:99/proxy/v1/").value();
  EXPECT_EQ(std::tie(b.host, b.port, b.path), std::make_tuple("::1", "99", "/proxy"));
  EXPECT_EQ(parse_url("http://host/v1").value().port, "80");
  for (const char* bad : {"https://x", "localhost:8000", "http://", "http://x:0", "http://x:y", "http://x:70000"}) {
    EXPECT_THAT(parse_url(bad).status().message(), HasSubstr(bad)) << bad;
  }
}

// Proxies and strict servers refuse "Host: ::1:99" (400).
TEST(Url, TheHostHeaderOfAnIpv6AddressHasItsBrackets) {
  const Endpoint v6 = parse_url("http://[::1]:99").value(), v4 = parse_url("http://127.0.0.1:99").value();
  EXPECT_THAT(get_head(v6, "/health", ""), HasSubstr("\r\nHost: [::1]:99\r\n"));
  EXPECT_THAT(post_head(v6, "/v1/completions", "key", 2), HasSubstr("\r\nHost: [::1]:99\r\n"));
  EXPECT_THAT(get_head(v4, "/health", ""), HasSubstr("\r\nHost: 127.0.0.1:99\r\n"));
}

// Whatever pieces the bytes come in.
std::string body_of(std::string_view bytes, size_t piece, ResponseReader& reader) {
  std::string body;
  for (size_t i = 0; i < bytes.size(); i += piece) reader.feed(bytes.substr(i, piece), body);
  return body;
}

TEST(ResponseReader, EveryFramingInAnyPieces) {
  constexpr std::string_view kLength = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  constexpr std::string_view kChunked =
      "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
  constexpr std::string_view kClose = "HTTP/1.0 200 OK\r\n\r\nhello";
  for (size_t piece = 1; piece < 60; ++piece) {
    ResponseReader a, b, c;
    EXPECT_EQ(body_of(kLength, piece, a), "hello");
    EXPECT_EQ(a.state(), State::kDone);
    EXPECT_TRUE(a.keep_alive());
    EXPECT_EQ(body_of(kChunked, piece, b), "hello");
    EXPECT_EQ(b.state(), State::kDone);
    EXPECT_EQ(b.status(), 201);
    EXPECT_EQ(body_of(kClose, piece, c), "hello");
    EXPECT_EQ(c.state(), State::kBody);
    c.end();
    EXPECT_EQ(c.state(), State::kDone);
    EXPECT_FALSE(c.keep_alive());
  }
}

TEST(ResponseReader, WhatIsCutOffOrNoHttpIsBad) {
  ResponseReader cut, garbage, chunk;
  body_of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", 7, cut);
  cut.end();
  EXPECT_EQ(cut.state(), State::kBad);
  body_of("SMTP ready\r\n\r\n", 7, garbage);
  EXPECT_EQ(garbage.state(), State::kBad);
  body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 7, chunk);
  EXPECT_EQ(chunk.state(), State::kBad);
  for (const char* head : {"HTTP/1.1\r\n\r\n", "HTTP/1.1 2\r\n\r\n", "HTTP/1.1 20x\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n"}) {
    ResponseReader reader;
    body_of(head, 1000, reader);
    EXPECT_EQ(reader.state(), State::kBad) << head;
  }
}

// On a connection that stays open the next answer would begin with what was left of this one.
TEST(ResponseReader, AnAnswerInChunksEndsWithItsEmptyLineWhereverItWasCut) {
  ResponseReader reader;
  body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", 1000, reader);
  EXPECT_EQ(reader.state(), State::kBody);
  body_of("X-Time: 3\r\n", 1000, reader);
  EXPECT_EQ(reader.state(), State::kBody);
  body_of("\r\n", 1000, reader);
  EXPECT_EQ(reader.state(), State::kDone);
}

TEST(EventReader, SplitsAndSkipsComments) {
  EventReader reader;
  std::vector<std::string> events;
  std::string_view data;
  for (const char c : std::string("data: one\n\n: ping\n\ndata:two\n\ndata: [DONE]\n\n")) {
    reader.input() += c;
    while (reader.next(data)) events.emplace_back(data);
  }
  EXPECT_THAT(events, testing::ElementsAre("one", "two", "[DONE]"));
}

TEST(Stats, PercentilesInterpolate) {
  EXPECT_DOUBLE_EQ(percentile({1, 2, 3, 4}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.99), 7);
  const Summary s = summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.p90, 3.7);
  EXPECT_DOUBLE_EQ(s.max, 4);
  EXPECT_EQ(summarize({}).count, 0u);
}

TEST(Prompts, AreFunctionsOfTheirSeed) {
  EXPECT_EQ(random_words(1, 50), random_words(1, 50));
  EXPECT_NE(random_words(1, 50), random_words(2, 50));
  const std::string words = random_words(3, 50);
  EXPECT_EQ(std::count(words.begin(), words.end(), ' '), 49);
}

LoadResult two_streams() {
  LoadResult r;
  r.seconds = 2;
  r.streams.push_back({"", 0.1, 1.1, {0.5, 0.5}, 10, 3});
  r.streams.push_back({"HTTP 500", 0, 0, {}, 0, 0});
  return r;
}

TEST(Report, CountsWhatWentWellAndNamesWhatDidNot) {
  Report report{"batch", "http://x", "a<b", 10, 3, 42, true, {make_level("2 at once", 2, two_streams())}};
  const Level& l = report.levels[0];
  EXPECT_EQ(l.failed, 1u);
  EXPECT_EQ(l.first_error, "HTTP 500");
  EXPECT_DOUBLE_EQ(l.output_rate(), 1.5);
  EXPECT_DOUBLE_EQ(l.total_rate(), 6.5);
  EXPECT_DOUBLE_EQ(l.tpot.p50, 0.5);
  const auto json = to_json(report);
  EXPECT_DOUBLE_EQ(json["levels"][0]["ttft_ms"]["p50"].get<double>(), 100.0);
  EXPECT_EQ(json["seed_offset"], 42);
  EXPECT_THAT(table(report), HasSubstr("1/2"));
  const std::string svg = to_svg(report);
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace bz::loadgen
