// What the options of a server do, and how it starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/expect_answer.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using ::testing::HasSubstr;

TEST(ServerOptionsTest, ApiKeys) {
  ServerOptions options = test_options();
  options.api_keys = {"k1", "k2"};
  RunningServer s(options);
  RawClient client(s.port);
  client.post("/v1/completions", kHello);
  expect_error(client.read_answer(), 401, "", "invalid_api_key");
  client.post("/v1/completions", kHello, "Authorization: Bearer wrong\r\n");
  expect_error(client.read_answer(), 401, "", "invalid_api_key");
  client.post("/v1/completions", kHello, "Authorization: Bearer k2\r\n");
  EXPECT_EQ(client.read_answer().status, 200);
  client.get("/health");
  EXPECT_EQ(client.read_answer().status, 200);
}

// Whoever has no key has no memory for a body and no time: the answer does not wait for it.
TEST(ServerOptionsTest, WithoutAKeyTheAnswerComesBeforeTheBody) {
  ServerOptions options = test_options();
  options.api_keys = {"k1"};
  RunningServer s(options);
  for (const char* framing : {"Content-Length: 8000000", "Content-Length: 70", "Transfer-Encoding: chunked",
                              "Expect: 100-continue\r\nContent-Length: 70"}) {
    SCOPED_TRACE(framing);
    RawClient client(s.port);
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\n{}\r\n\r\n", framing));
    const RawAnswer answer = client.read_answer();
    expect_error(answer, 401, "", "invalid_api_key");
    EXPECT_EQ(answer.header("connection"), framing == std::string("Content-Length: 70") ? "" : "close");
  }
}

// All of the 8 MB may be on its way when the answer comes: it must not be lost to a reset.
TEST(ServerOptionsTest, WithoutAKeyALargeBodyIsReadOffAndTheAnswerArrives) {
  ServerOptions options = test_options();
  options.api_keys = {"k1"};
  options.http.max_total_body_bytes = 1;  // a body that were kept would be refused with 503
  RunningServer s(options);
  RawClient client(s.port);
  client.post("/v1/completions", std::string(8'000'000, 'x'));
  expect_error(client.read_answer(), 401, "", "invalid_api_key");
  EXPECT_TRUE(client.closed_by_server());
}

// The small body of a refused request is not the beginning of the next one, whatever pieces it comes in.
TEST(ServerOptionsTest, WithoutAKeyTheConnectionGoesOnAfterASmallBody) {
  ServerOptions options = test_options();
  options.api_keys = {"k1"};
  RunningServer s(options);
  RawClient client(s.port);
  const std::string body = "GET /health HTTP/1.1\r\n\r\n" + std::string(60'000, 'x');
  for (const size_t piece : {size_t{1000}, body.size()}) {
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.size()));
    expect_error(client.read_answer(), 401, "", "invalid_api_key");
    for (size_t at = 0; at < body.size(); at += piece) client.send(std::string_view(body).substr(at, piece));
    client.post("/v1/completions", kHello, "Authorization: Bearer k1\r\n");
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

TEST(ServerOptionsTest, CorsOrigins) {
  ServerOptions options = test_options();
  options.cors_origins = {"https://app.example"};
  RunningServer s(options);
  RawClient client(s.port);
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://app.example\r\n\r\n");
  RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "https://app.example");
  EXPECT_THAT(answer.header("access-control-allow-headers"), HasSubstr("Authorization"));
  client.post("/v1/completions", kHello, "Origin: https://app.example\r\n");
  answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "https://app.example");
  client.post("/v1/completions", kHello, "Origin: https://other.example\r\n");
  expect_error(client.read_answer(), 403, "", "origin_not_allowed");
}

TEST(ServerOptionsTest, ASeedMakesUnseededRequestsRepeatable) {
  ServerOptions options = test_options();
  options.seed = 40;
  RunningServer s(options);
  RawClient client(s.port);
  for (const uint64_t expected : {40, 41}) {
    client.post("/v1/completions", kHello);
    client.read_answer();
    EXPECT_EQ(s.engine->last_request.sampling.seed, expected);
  }
}

TEST(ServerOptionsTest, TimeOuts) {
  ServerOptions options = test_options();
  options.http.read_timeout = std::chrono::milliseconds(300);
  options.http.idle_timeout = std::chrono::milliseconds(300);
  RunningServer s(options);
  RawClient slow(s.port), idle(s.port);
  slow.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  expect_error(slow.read_answer(), 408);
  EXPECT_TRUE(slow.closed_by_server());
  EXPECT_TRUE(idle.closed_by_server());
}

TEST(ServerOptionsTest, TooManyConnections) {
  ServerOptions options = test_options();
  options.http.max_connections = 2;
  RunningServer s(options);
  RawClient a(s.port), b(s.port);
  a.get("/health");
  b.get("/health");
  EXPECT_EQ(a.read_answer().status, 200);
  EXPECT_EQ(b.read_answer().status, 200);
  RawClient c(s.port);
  const RawAnswer answer = c.read_answer();
  expect_error(answer, 503);
  EXPECT_EQ(answer.header("retry-after"), "1");
}

TEST(ServerOptionsTest, TheBodiesOfAllConnectionsTogetherAreBounded) {
  ServerOptions options = test_options();
  options.http.max_total_body_bytes = 1 << 20;
  RunningServer s(options);
  RawClient a(s.port), b(s.port);
  const std::string part(700'000, ' ');
  for (RawClient* c : {&a, &b}) {
    c->send("POST /v1/completions HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
    c->send(part);
  }
  const RawAnswer answer = b.read_answer();
  expect_error(answer, 503);
  EXPECT_EQ(answer.header("retry-after"), "1");
}

// Found with 32 bodies that stopped just below the limit: for as long as they lasted every request was refused.
TEST(ServerOptionsTest, LargeBodiesThatDoNotEndKeepNoSmallOneOut) {
  ServerOptions options = test_options();
  options.http.max_total_body_bytes = 1 << 20;
  RunningServer s(options);
  RawClient large(s.port), small(s.port);
  large.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n");
  large.send(std::string((1 << 20) - 10, ' '));
  for (int i = 0; i < 20; ++i) {  // the large one's bytes may arrive later than the first of these
    small.post("/v1/completions", kHello);
    EXPECT_EQ(small.read_answer().status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// With every place taken and as many waiting as may, the next request is told to come again, before its body is read.
TEST(ServerOptionsTest, AFullQueueAnswers503WithRetryAfter) {
  ServerOptions options = test_options();
  options.max_waiting_requests = 2;
  RunningServer s(options);
  const int places = s.engine->info().max_num_seqs;
  std::vector<std::unique_ptr<RawClient>> running;
  const std::vector<std::string> prompts(kMaxPrompts, "\"SLOW\"");
  for (size_t i = 0; i < static_cast<size_t>(places); i += kMaxPrompts) {
    running.push_back(std::make_unique<RawClient>(s.port));
    running.back()->post("/v1/completions", fmt::format("{{\"prompt\":[{}]}}", fmt::join(prompts, ",")));
  }
  ASSERT_TRUE(eventually([&] { return s.engine->num_running() == places; }));
  RawClient first(s.port), second(s.port), third(s.port);
  first.post("/v1/completions", R"({"prompt":"SLOW"})");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == places + 1; }));
  second.post("/v1/completions", R"({"prompt":"SLOW"})");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == places + 2; }));

  third.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 5000\r\n\r\n");
  const RawAnswer answer = third.read_answer();
  expect_error(answer, 503, "", "queue_full");
  EXPECT_EQ(answer.header("retry-after"), "1");
  RawClient other(s.port);
  other.get("/metrics");
  EXPECT_THAT(other.read_answer().body, HasSubstr("requests_refused_queue_full_total{model_name=\"mock\"} 1\n"));
  other.post("/tokenize", R"({"prompt":"Hi"})");  // needs no place
  EXPECT_EQ(other.read_answer().status, 200);

  first.close();  // who leaves makes room
  EXPECT_TRUE(eventually([&] {
    other.post("/v1/completions", kHello);
    return other.read_answer().status == 200;
  }));
}

// Answers of every kind give their places back: two more than there are, one after the other.
TEST(ServerOptionsTest, AQueueOfNoneServesOneRequestAfterTheOther) {
  ServerOptions options = test_options();
  options.max_waiting_requests = 0;
  RunningServer s(options);
  RawClient client(s.port);
  const std::string body = R"({"prompt":"Hello","max_tokens":1,"n":)" + std::to_string(engine::kMaxChoices);
  for (int i = 0; i < 10; ++i) {
    for (const char* rest : {"}", R"(,"stop":["H"]})", R"(,"stream":true})"}) {
      client.post("/v1/completions", body + rest);
      ASSERT_EQ(client.read_answer().status, 200) << i << rest;
    }
    client.post("/v1/completions", R"({"prompt":["Hi","REFUSE"]})");
    ASSERT_EQ(client.read_answer().status, 400);
    client.post("/v1/completions", R"({"prompt":"FAIL"})");
    ASSERT_EQ(client.read_answer().status, 500);
  }
}

TEST(ServerStart, ATakenPortIsOneClearLine) {
  RunningServer s;
  ServerOptions options = test_options();
  options.http.port = s.port;
  const auto second = Server::listen(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().exit_code(), 2);
  EXPECT_THAT(second.status().message(), HasSubstr(fmt::format("--port {}", s.port)));
  EXPECT_EQ(second.status().message().find('\n'), std::string::npos);
}

TEST(ServerStart, ABadHostIsOneClearLine) {
  ServerOptions options = test_options();
  options.http.host = "256.1.1.1";
  const auto server = Server::listen(options);
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().exit_code(), 2);
  EXPECT_EQ(server.status().param(), "host");
}

TEST(ServerStart, WhileLoadingHealthSaysSo) {
  RunningServer s(test_options(), std::chrono::microseconds(200), false);
  RawClient client(s.port);
  client.get("/health");
  RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(body_of(answer)["status"], "loading");
  EXPECT_EQ(body_of(answer)["ready"], false);
  client.post("/v1/completions", kHello);
  expect_error(client.read_answer(), 503, "", "loading");
  s.attach();
  client.post("/v1/completions", kHello);
  EXPECT_EQ(client.read_answer().status, 200);
}

}  // namespace
}  // namespace bz::server
