#include "server/http_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bz::server {
namespace {

using State = RequestParser::State;

// Feeds all of `bytes`, `piece` at a time, and returns the requests; `status` is that of a refusal, or 0.
struct Parsed {
  std::vector<HttpRequest> requests;
  int status = 0;
  State state = State::kStart;
};
Parsed parse(std::string_view bytes, size_t piece, int64_t max_header = 1000, int64_t max_body = 1000) {
  RequestParser parser(max_header, max_body);
  Parsed out;
  std::string waiting;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    for (size_t n = 1; n > 0 && !waiting.empty();) {
      const State before = parser.state();
      n = parser.feed(waiting);
      waiting.erase(0, n);
      if (parser.state() == State::kBad) {
        out.status = parser.error_status();
        return out;
      }
      if (parser.state() == State::kComplete) out.requests.push_back(parser.take());
      if (parser.state() != before) n = 1;
    }
  }
  out.state = parser.state();
  return out;
}

TEST(HttpParser, ARequestInAnyPieces) {
  const std::string bytes = "POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Two:  y \r\nContent-Length: 5\r\n\r\nhello";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Parsed p = parse(bytes, piece);
    ASSERT_EQ(p.requests.size(), 1u) << piece;
    const HttpRequest& r = p.requests[0];
    EXPECT_EQ(r.method, "POST");
    EXPECT_EQ(r.path, "/a");
    EXPECT_EQ(r.query, "b=c");
    EXPECT_EQ(r.header("x-two"), "y");
    EXPECT_EQ(r.body, "hello");
  }
}

TEST(HttpParser, ATargetMayNameTheHost) {
  for (const auto& [target, path] : {std::pair{"http://x:80/a/b?c", "/a/b"},
                                     {"HTTPS://x/", "/"},
                                     {"http://x?c", "/"},
                                     {"http://x", "/"},
                                     {"/http://x/a", "/http://x/a"},
                                     {"*", "*"}}) {
    const Parsed p = parse(std::string("GET ") + target + " HTTP/1.1\r\n\r\n", 1000);
    ASSERT_EQ(p.requests.size(), 1u) << target;
    EXPECT_EQ(p.requests[0].path, path) << target;
  }
}

TEST(HttpParser, EscapesOfAPath) {
  EXPECT_EQ(percent_decoded("org%2Fmodel%20b%c3%A4"), "org/model bä");
  EXPECT_EQ(percent_decoded("%"), "%");
  EXPECT_EQ(percent_decoded("%4"), "%4");
  EXPECT_EQ(percent_decoded("a%zz%+1%41"), "a%zz%+1A");
}

TEST(HttpParser, PipelinedRequestsAndStrayLineEnds) {
  const std::string bytes =
      "\r\nGET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 2\r\n\r\nab\r\nGET /3 HTTP/1.1\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    const Parsed p = parse(bytes, piece);
    ASSERT_EQ(p.requests.size(), 3u) << piece;
    EXPECT_EQ(p.requests[1].body, "ab");
    EXPECT_EQ(p.requests[2].path, "/3");
    EXPECT_EQ(p.state, State::kStart);
  }
}

TEST(HttpParser, AChunkedBody) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0004;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Parsed p = parse(bytes, piece);
    ASSERT_EQ(p.requests.size(), 1u) << piece;
    EXPECT_EQ(p.requests[0].body, "abcdefg");
  }
}

TEST(HttpParser, ADroppedBodyIsConsumedAndNoMore) {
  const std::string head = "POST /1 HTTP/1.1\r\nContent-Length: 9\r\n\r\n", rest = "GET / bodyGET /2 HTTP/1.1\r\n\r\n";
  for (size_t piece = 1; piece <= rest.size(); ++piece) {
    RequestParser parser(1000, 1000);
    ASSERT_EQ(parser.feed(head + rest), head.size());
    EXPECT_EQ(parser.head().path, "/1");
    parser.drop_body();
    std::string waiting;
    for (size_t at = 0; at < rest.size(); at += piece) {
      EXPECT_EQ(parser.dropping(), at < 9) << piece;
      waiting += rest.substr(at, piece);
      waiting.erase(0, parser.feed(waiting));
    }
    ASSERT_EQ(parser.state(), State::kComplete) << piece;
    EXPECT_EQ(parser.take().path, "/2");
  }
}

TEST(HttpParser, LimitsHaveTheirOwnStatus) {
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x'), 100).status, 431);
  EXPECT_EQ(parse("GET /" + std::string(2000, 'x'), 100).status, 431);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 100).status, 413);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n", 100).status, 413);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x'), 100).status,
            413);
}

// Found by fuzzing: a header in one piece could be a little larger than one in several.
TEST(HttpParser, TheHeadersLimitDoesNotDependOnPieces) {
  for (size_t size = 100; size <= 130; ++size) {
    const std::string frame = "GET / HTTP/1.1\r\nA: b\r\nX: \r\n\r\n";
    const std::string bytes = "GET / HTTP/1.1\r\nA: b\r\nX: " + std::string(size - frame.size(), 'x') + "\r\n\r\n";
    for (const size_t piece : {size_t{1}, size_t{7}, size}) {
      EXPECT_EQ(parse(bytes, piece, 115).status, size <= 115 ? 0 : 431) << size << " bytes in pieces of " << piece;
    }
  }
}

TEST(HttpParser, BrokenRequestsAreRefused) {
  for (const std::string bytes : {
           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  // a TLS hello
           "GET / HTTP/1.1\r\nNo colon\r\n\r\n",
           "GET / HTTP/1.1\r\nX: a\x01\r\n\r\n",
           "GET  HTTP/1.1\r\n\r\n",
           "garbage\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
           "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
           "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n",
       }) {
    EXPECT_EQ(parse(bytes, 1).status, 400) << bytes;
    EXPECT_EQ(parse(bytes, bytes.size()).status, 400) << bytes;
  }
  for (const char* coding : {"gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"}) {
    const std::string bytes = fmt::format("POST / HTTP/1.1\r\nTransfer-Encoding: {}\r\n\r\n0\r\n\r\n", coding);
    EXPECT_EQ(parse(bytes, 1).status, 501) << bytes;
    EXPECT_EQ(parse(bytes, bytes.size()).status, 501) << bytes;
  }
  EXPECT_EQ(parse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 100).status, 505);
}

}  // namespace
}  // namespace bz::server
