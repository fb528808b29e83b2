// Streams: server-sent events, one and many at once.
#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/expect_answer.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

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

// 8 MB of one word take the tokenizer more than a second: it is the worker's, and others' answers do not wait for it.
TEST(ServerStream, WhileALongTextIsTokenisedOthersGoOn) {
  RunningServer s(test_options(), 200us, false);
  std::atomic<bool> rendering = false;
  std::promise<void> go;
  s.server->attach({s.engine.get(), s.tokenizer.get(), [&, wait = go.get_future().share()](const auto&, bool) {
                      rendering = true;
                      wait.wait();
                      return Result<std::string>("rendered");
                    }});
  RawClient running(s.port), longest(s.port), late(s.port);
  running.post("/v1/completions", stream_body("abcdefgh", 1000));
  EXPECT_EQ(running.read_head().status, 200);
  longest.post("/v1/chat/completions",
               R"({"max_tokens":1,"messages":[{"role":"user","content":")" + std::string(20'000, 'x') + R"("}]})");
  EXPECT_TRUE(eventually([&] { return rendering.load(); }));
  late.post("/v1/completions", stream_body("xyz", 30));
  EXPECT_TRUE(late.read_answer().complete);
  std::string chunk, rest;
  while (!(chunk = running.read_chunk()).empty()) rest += chunk;
  EXPECT_THAT(rest, ::testing::EndsWith("data: [DONE]\n\n"));
  go.set_value();
  EXPECT_EQ(longest.read_answer().status, 200);
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

}  // namespace
}  // namespace bz::server
