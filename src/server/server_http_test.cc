// HTTP as a client sees it: errors, framing, limits. Over real loopback sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/expect_answer.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServerHttp : public ::testing::Test {
 protected:
  RunningServer s;
};

TEST_F(ServerHttp, ErrorsNameTheFieldAndHarmNobody) {
  RawClient client(s.port);
  const struct {
    std::string body, param;
    int status = 400;
    std::string code = {};
  } cases[] = {
      {"{\"prompt\":", ""},
      {R"({"prompt":"x","temperature":NaN})", ""},
      {std::string(100'000, '['), ""},
      {"{\"prompt\":\"\xff\xfe\"}", ""},
      {R"({"prompt":"x","max_tokens":-1})", "max_tokens"},
      {R"({"prompt":"x","max_tokens":4096})", "max_tokens"},
      {R"({"prompt":"","max_tokens":1})", "prompt"},
      {R"({"prompt":[],"max_tokens":1})", "prompt"},
      {R"({"prompt":[300],"max_tokens":1})", "prompt"},
      {R"({"prompt":"REFUSE"})", "prompt"},
      {"{\"prompt\":\"" + std::string(4096, 'x') + "\"}", "prompt"},
      {"{\"prompt\":\"" + std::string(2'000'000, 'x') + "\"}", "prompt"},
      {R"({"prompt":"x","response_format":{"json_object":false}})", "response_format"},
      {R"({"prompt":"x","model":"other"})", "model", 404, "model_not_found"},
      {R"({"prompt":"FULL"})", "", 503},
      {R"({"prompt":"FAIL"})", "", 500},
      {R"({"prompt":["Hi","REFUSE"]})", "prompt"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.body.substr(0, 80));
    client.post("/v1/completions", c.body);
    expect_error(client.read_answer(), c.status, c.param, c.code);
    client.post("/v1/completions", kHello);  // on the same connection
    EXPECT_EQ(client.read_answer().status, 200);
  }
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 0; }));
}

TEST_F(ServerHttp, APromptOverTheContextSaysHowLongAndTheLimit) {
  RawClient client(s.port);
  client.post("/v1/completions", "{\"prompt\":\"" + std::string(5000, 'x') + "\"}");
  const std::string message = body_of(client.read_answer())["error"]["message"];
  EXPECT_THAT(message, HasSubstr("5000"));
  EXPECT_THAT(message, HasSubstr("4096"));
}

TEST_F(ServerHttp, PathsAndMethods) {
  RawClient client(s.port);
  client.get("/nothing");
  RawAnswer answer = client.read_answer();
  expect_error(answer, 404, "", "not_found");
  EXPECT_THAT(answer.body, HasSubstr("there are /v1/completions, /v1/chat/completions, /v1/models, /tokenize,"));
  client.get("/v1/completions");
  answer = client.read_answer();
  expect_error(answer, 405, "", "method_not_allowed");
  EXPECT_EQ(answer.header("allow"), "POST, OPTIONS");
  client.post("/health", "{}");
  expect_error(client.read_answer(), 405, "", "method_not_allowed");
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  answer = client.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("allow"), "POST, OPTIONS");
  client.send("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  answer = client.read_answer(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_GT(std::stoi(answer.header("content-length")), 10);
  client.get("/v1/models?x=y");
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(ServerHttp, ForeignOriginsAreRefused) {
  RawClient client(s.port);
  client.post("/v1/completions", kHello, "Origin: https://evil.example\r\n");
  const RawAnswer answer = client.read_answer();
  expect_error(answer, 403, "", "origin_not_allowed");
  EXPECT_EQ(answer.header("access-control-allow-origin"), "");
  client.post("/v1/completions", kHello, "Origin: http://localhost\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(ServerHttp, RequestIdsAreEchoed) {
  RawClient client(s.port);
  client.get("/health", "X-Request-Id: my-1\r\n");
  EXPECT_EQ(client.read_answer().header("x-request-id"), "my-1");
  client.get("/health");
  EXPECT_THAT(client.read_answer().header("x-request-id"), StartsWith("req-"));
}

TEST_F(ServerHttp, PipelinedRequestsAreAnsweredInOrder) {
  RawClient client(s.port);
  std::string bytes;
  for (int i = 0; i < 20; ++i) {
    const std::string body = fmt::format(R"({{"prompt":"p{:02}","max_tokens":3}})", i);
    bytes += fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
    bytes += "GET /health HTTP/1.1\r\n\r\n";
  }
  client.send(bytes);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(body_of(client.read_answer())["choices"][0]["text"], fmt::format("p{:02}", i));
    EXPECT_EQ(body_of(client.read_answer())["status"], "ok");
  }
}

TEST_F(ServerHttp, PipelinedGarbageEndsTheConnectionAfterTheGoodAnswer) {
  RawClient client(s.port);
  client.send("GET /health HTTP/1.1\r\n\r\n\x01\x02 garbage\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
  const RawAnswer answer = client.read_answer();
  expect_error(answer, 400);
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(ServerHttp, ARequestInSingleBytes) {
  RawClient client(s.port);
  const std::string bytes =
      fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", kHello.size(), kHello);
  for (const char c : bytes) client.send({&c, 1});
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(ServerHttp, AChunkedRequestBody) {
  RawClient client(s.port);
  client.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : kHello) client.send(fmt::format("1\r\n{}\r\n", c));
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(ServerHttp, Expect100Continue) {
  RawClient client(s.port);
  client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                          kHello.size()));
  EXPECT_EQ(client.read_answer().status, 100);
  client.send(kHello);
  EXPECT_EQ(client.read_answer().status, 200);
  client.send("POST /v1/completions HTTP/1.1\r\nExpect: a-miracle\r\nContent-Length: 5\r\n\r\n");
  expect_error(client.read_answer(), 417);
}

TEST_F(ServerHttp, Http10AndConnectionClose) {
  RawClient old(s.port);
  old.send("GET /health HTTP/1.0\r\n\r\n");
  RawAnswer answer = old.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_TRUE(old.closed_by_server());
  RawClient closing(s.port);
  closing.get("/health", "Connection: close\r\n");
  EXPECT_EQ(closing.read_answer().status, 200);
  EXPECT_TRUE(closing.closed_by_server());
}

// The whole 100 MB may be on its way when the answer comes: it must not be lost to a reset.
TEST_F(ServerHttp, A100MegabyteBodyIsRefusedWithAnAnswer) {
  RawClient client(s.port);
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n");
  const std::string megabyte(1 << 20, 'x');
  int sent = 0;
  while (sent < 100 && client.send(megabyte)) ++sent;
  EXPECT_EQ(sent, 100);
  expect_error(client.read_answer(), 413);
}

TEST_F(ServerHttp, AHugeHeaderIsRefused) {
  RawClient client(s.port);
  client.get("/health", "X: " + std::string(40'000, 'x') + "\r\n");
  expect_error(client.read_answer(), 431);
}

}  // namespace
}  // namespace bz::server
