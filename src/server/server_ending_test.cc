// How requests end early: clients that leave or read slowly, engines that fail, drains.
#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/expect_answer.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using namespace std::chrono_literals;

// ---- Clients that leave ----

// That the server has open, the one that asks included.
int num_connections(RawClient& client) {
  client.get("/metrics");
  const std::string metrics = client.read_answer().body;
  const size_t at = metrics.find("\nblockzero:http_connections");
  return at == std::string::npos ? -1 : std::atoi(metrics.c_str() + metrics.find(' ', at + 1));
}

TEST(ServerDisconnect, WhileStreaming) {
  RunningServer s(test_options(), 1ms);
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abc", 4000));
  client.read_head();
  client.read_chunk();
  client.close();
  EXPECT_TRUE(eventually([&] { return s.engine->num_cancelled == 1; }));
  EXPECT_EQ(s.engine->num_running(), 0);
}

TEST(ServerDisconnect, WhileWaitingForTheFirstToken) {
  RunningServer s;
  for (const char* stream : {"true", "false"}) {
    const int before = s.engine->num_cancelled;
    RawClient client(s.port);
    client.post("/v1/completions", fmt::format(R"({{"prompt":["SLOW","SLOW"],"stream":{}}})", stream));
    EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 2; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return s.engine->num_cancelled == before + 2; }));
  }
}

TEST(ServerDisconnect, WithPipelinedRequestsBehind) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"SLOW"})");
  client.get("/health");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return s.engine->num_cancelled == 1; }));
}

// Found with 30 texts of 8 MB whose senders had gone: every long prompt waited for more than a minute.
TEST(ServerDisconnect, LongTextsOfThoseWhoLeftHoldUpNobody) {
  RunningServer s(test_options(), 200us, false);
  std::atomic<int> rendered{0};
  std::promise<void> go;
  s.server->attach({s.engine.get(), s.tokenizer.get(), [&, wait = go.get_future().share()](const auto&, bool) {
                      if (++rendered == 1) wait.wait();
                      return Result<std::string>("rendered");
                    }});
  const std::string body = R"({"messages":[{"role":"user","content":")" + std::string(20'000, 'x') + R"("}]})";
  RawClient first(s.port), last(s.port), watcher(s.port);
  first.post("/apply-template", body);
  EXPECT_TRUE(eventually([&] { return rendered == 1; }));
  std::array<std::optional<RawClient>, 10> leaving;
  for (auto& client : leaving) client.emplace(s.port);
  for (auto& client : leaving) {
    EXPECT_GT(num_connections(*client), 3);
    client->post("/apply-template", body);
    client->close();
  }
  last.post("/apply-template", body);
  EXPECT_TRUE(eventually([&] { return num_connections(watcher) == 3; }));
  go.set_value();
  EXPECT_EQ(first.read_answer().status, 200);
  EXPECT_EQ(last.read_answer().status, 200);
  EXPECT_EQ(rendered, 2);
}

TEST(ServerDisconnect, OthersGoOn) {
  RunningServer s;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 32; ++i) {
    clients.push_back(std::make_unique<RawClient>(s.port));
    clients.back()->post("/v1/completions", stream_body("abcd", 400));
  }
  for (size_t i = 0; i < clients.size(); i += 2) {
    if (i % 4 == 0) clients[i]->read_head();
    clients[i]->close();
  }
  for (size_t i = 1; i < clients.size(); i += 2) {
    EXPECT_EQ(text_of(events_of(clients[i]->read_answer().body)).size(), 400u);
  }
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 0; }));
}

// ---- Slow readers ----

// The events of 4,000 tokens are far more than the socket's small buffers: they are joined while the client sleeps, the
// engine is not held up, and other clients are not either.
TEST(ServerSlowReader, GetsEverythingInFewerEvents) {
  RunningServer s(test_options(), 50us);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<RawClient>(s.port, 2048));
    slow.back()->post("/v1/completions",
                      R"({"prompt":["abcdefgh","abcdefgh","abcdefgh","abcdefgh","abcdefgh","abcdefgh",)"
                      R"("abcdefgh","abcdefgh"],"max_tokens":4000,"stream":true})");
  }
  RawClient quick(s.port);
  quick.post("/v1/completions", stream_body("ab", 100));
  EXPECT_EQ(text_of(events_of(quick.read_answer().body)).size(), 100u);
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 0; }));  // although nobody has read
  for (auto& client : slow) {
    const auto events = events_of(client->read_answer().body);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(text_of(events, i).size(), 4000u);
    EXPECT_LT(events.size(), 8u * 1000u);
  }
}

TEST(ServerSlowReader, OneThatReadsNothingIsLetGo) {
  ServerOptions options = test_options();
  options.http.write_timeout = 300ms;
  RunningServer s(options, 100us);
  RawClient client(s.port, 1024);
  std::string prompts = "\"x\"";
  for (int i = 1; i < 100; ++i) prompts += ",\"x\"";
  client.post("/v1/completions", fmt::format(R"({{"prompt":[{}],"max_tokens":4000,"stream":true}})", prompts));
  EXPECT_TRUE(eventually([&] { return s.engine->num_cancelled == 100; }));
}

TEST(ServerSlowReader, PipelinedAnswersAreNotPiledUp) {
  RunningServer s;
  RawClient client(s.port, 1024);
  // The page is large; 2,000 of them unread would be 10 MB. What waits stays a request.
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += "GET / HTTP/1.1\r\n\r\n";
  client.send(bytes);
  std::this_thread::sleep_for(100ms);
  RawClient other(s.port);
  other.get("/metrics");
  const std::string metrics = other.read_answer().body;
  const std::string line = "handler=\"/\",status=\"200\"} ";
  const size_t at = metrics.find(line);
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::stoi(metrics.substr(at + line.size())), 1000);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(client.read_answer().status, 200) << i;
}

// ---- Failures ----

TEST(ServerFailure, ARequestFailsAloneInItsStream) {
  RunningServer s(test_options(), 2ms);
  RawClient good(s.port), bad(s.port);
  good.post("/v1/completions", stream_body("abcd", 40));
  bad.post("/v1/completions", stream_body("FAIL", 40));
  const auto events = events_of(bad.read_answer().body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_TRUE(events.back().is_null());
  EXPECT_EQ(events[events.size() - 2]["error"]["message"], "made to fail");
  EXPECT_EQ(text_of(events_of(good.read_answer().body)).size(), 40u);
}

TEST(ServerFailure, AFailStopEndsEveryRequestAndTheServer) {
  RunningServer s;
  RawClient waiting(s.port);
  waiting.post("/v1/completions", R"({"prompt":"SLOW"})");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 1; }));
  s.engine->fail("guard fault in step 7");
  const RawAnswer answer = waiting.read_answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_NE(answer.body.find("guard fault in step 7"), std::string::npos);
  s.join();
  EXPECT_EQ(s.server->engine_failure(), "guard fault in step 7");
}

TEST(ServerFailure, HealthTellsOfAStoppedEngine) {
  ServerOptions options = test_options();
  options.exit_on_engine_failure = false;
  RunningServer s(options);
  s.engine->fail("guard fault");
  RawClient client(s.port);
  client.get("/health");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(Json::parse(answer.body), Json::parse(R"({"status":"failed","live":false,"ready":false,)"
                                                  R"("null_block_clean":true,"failure":"guard fault"})"));
  client.post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(client.read_answer().status, 503);
}

// ---- Drain ----

TEST(ServerDrain, RunningAnswersEndAndNewConnectionsAreRefused) {
  RunningServer s(test_options(), 2ms);
  RawClient running(s.port), idle(s.port);
  running.post("/v1/completions", stream_body("abcd", 100));
  running.read_head();
  idle.get("/health");
  idle.read_answer();
  s.server->begin_drain(5s);
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_FALSE(RawClient(s.port).connected());
  std::string body;
  for (std::string chunk = running.read_chunk(); !chunk.empty(); chunk = running.read_chunk()) body += chunk;
  EXPECT_EQ(text_of(events_of(body)).size(), 100u);
  s.join();
  EXPECT_EQ(s.outcome, HttpOutcome::kDrained);
}

TEST(ServerDrain, TheDeadlineCutsOff) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"SLOW"})");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 1; }));
  s.stop(100ms);
  EXPECT_EQ(s.outcome, HttpOutcome::kCutOff);
  EXPECT_TRUE(eventually([&] { return s.engine->num_cancelled == 1; }));
}

TEST(ServerDrain, TheEngineMayOutliveTheServer) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abc", 4000));
  client.read_head();
  s.stop(0ms);
  s.server.reset();
  std::this_thread::sleep_for(5ms);
}

}  // namespace
}  // namespace bz::server
