// Streams and lives: SSE, clients that leave or read slowly, many at once, engines that fail, drains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

// The events of a stream's body: "data: " stripped, [DONE] as null.
std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = body.substr(at, end - at);
    EXPECT_THAT(event, StartsWith("data: "));
    events.push_back(event == "data: [DONE]" ? Json() : Json::parse(event.substr(6)));
    at = end + 2;
  }
  return events;
}

std::string text_of(const std::vector<Json>& events, size_t index = 0) {
  std::string text;
  for (const Json& event : events) {
    if (event.is_null()) continue;
    for (const Json& choice : event["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta")) text += choice["delta"].value("content", "");
    }
  }
  return text;
}

std::string stream_body(const std::string& prompt, int max_tokens, const std::string& more = "") {
  return fmt::format(R"({{"prompt":"{}","max_tokens":{},"stream":true{}}})", prompt, max_tokens, more);
}

TEST(ServerStream, EventsComeInOrderAndEndWithDone) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abcdefgh", 20));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.header("content-type"), StartsWith("text/event-stream"));
  EXPECT_TRUE(answer.complete);
  const auto events = events_of(answer.body);
  ASSERT_GE(events.size(), 2u);  // 21 unless the machine is busy
  EXPECT_EQ(text_of(events), "abcdefghabcdefghabcd");
  EXPECT_TRUE(events.back().is_null());
  const Json& last = events[events.size() - 2];
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null());
    EXPECT_EQ(events[i]["id"], last["id"]);
    EXPECT_EQ(events[i]["object"], "text_completion");
  }
  // The connection lives on.
  client.get("/health");
  EXPECT_EQ(client.read_answer().status, 200);
}

// Each event has the log probabilities of its own tokens; those of a stop string's come with the last one.
TEST(ServerStream, LogprobsComeWithTheirTokens) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abcd", 40, R"(,"logprobs":0,"echo":true,"stop":["da"])"));
  const auto events = events_of(client.read_answer().body);
  EXPECT_EQ(text_of(events), "abcdabc");
  std::string tokens;
  std::vector<int> offsets;
  for (const Json& event : events) {
    if (event.is_null() || event["choices"][0]["logprobs"].is_null()) continue;
    for (const Json& token : event["choices"][0]["logprobs"]["tokens"]) tokens += token.get<std::string>();
    for (const Json& offset : event["choices"][0]["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(tokens, "abcdabcda");
  EXPECT_THAT(offsets, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(ServerStream, ChoicesCarryTheirIndex) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abcd", 5, R"(,"n":3)"));
  const auto events = events_of(client.read_answer().body);
  EXPECT_EQ(text_of(events, 0), "abcda");
  EXPECT_EQ(text_of(events, 1), "bcdab");
  EXPECT_EQ(text_of(events, 2), "cdabc");
}

TEST(ServerStream, TokensAreSentAsTheyCome) {
  RunningServer s(test_options(), 100ms);
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("abcdefgh", 8));
  client.read_head();
  std::string text;
  int chunks = 0;
  for (; text.size() < 8; ++chunks) text += text_of(events_of(client.read_chunk()));
  EXPECT_EQ(text, "abcdefgh");
  EXPECT_GT(chunks, 1);  // 8 unless the machine is busy: a server that is late sends what has come together
}

TEST(ServerStream, ChatBeginsWithTheRoleAndUsageComesLast) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":8,"stream":true,)"
                                      R"("stream_options":{"include_usage":true}})");
  const auto events = events_of(client.read_answer().body);
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(text_of(events), "user: hi");
  const Json& usage = events[events.size() - 2];
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 8);
  const Json& finish = events[events.size() - 3];
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(finish["choices"][0]["delta"], Json::object());
  EXPECT_TRUE(finish["usage"].is_null() && finish.contains("usage"));
}

TEST(ServerStream, SeveralPromptsInOneStream) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":["abc","xy"],"max_tokens":6,"stream":true})");
  const auto events = events_of(client.read_answer().body);
  EXPECT_EQ(text_of(events, 0), "abcabc");
  EXPECT_EQ(text_of(events, 1), "xyxyxy");
}

TEST(ServerStream, AStopStringIsNeverSent) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("one STOP two", 4000, R"(,"stop":"STOP")"));
  const auto events = events_of(client.read_answer().body);
  EXPECT_EQ(text_of(events), "one ");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(s.engine->num_cancelled, 1);
}

TEST(ServerStream, ACharacterOfSeveralTokensIsNeverSplit) {
  RunningServer s;
  RawClient client(s.port);
  client.post("/v1/completions", stream_body("\xf0\x9f\x98\x80\xc3\xa9", 12));
  EXPECT_EQ(text_of(events_of(client.read_answer().body)), "\xf0\x9f\x98\x80\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9");
}

TEST(ServerStream, Http10StreamsUntilTheConnectionCloses) {
  RunningServer s;
  RawClient client(s.port);
  const std::string body = stream_body("ab", 4);
  client.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.header("transfer-encoding"), "");
  EXPECT_EQ(text_of(events_of(answer.body)), "abab");
}

TEST(ServerStream, SixtyFourAtOnce) {
  RunningServer s;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<RawClient>(s.port));
    clients.back()->post("/v1/completions", stream_body(fmt::format("client {:02} ", i), 300));
  }
  for (int i = 0; i < 64; ++i) {
    const std::string text = text_of(events_of(clients[static_cast<size_t>(i)]->read_answer().body));
    ASSERT_EQ(text.size(), 300u);
    const std::string prompt = fmt::format("client {:02} ", i);
    for (size_t at = 0; at < text.size(); at += prompt.size()) {
      EXPECT_EQ(text.substr(at, prompt.size()), prompt.substr(0, text.size() - at));
    }
  }
  EXPECT_EQ(s.engine->num_cancelled, 0);
}

// --- Clients that leave
// -----------------------------------------------------------------------------------------------

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

// --- Slow readers
// -----------------------------------------------------------------------------------------------------

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

// --- Failures
// ---------------------------------------------------------------------------------------------------------

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

// --- Drain
// ------------------------------------------------------------------------------------------------------------

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
