// HTTP as a client sees it: framing, limits, errors, access. Over real loopback sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Json body_of(const RawAnswer& answer) {
  auto json = parse_json(answer.body);
  EXPECT_TRUE(json.ok()) << answer.head << answer.body;
  return json.ok() ? std::move(json).value() : Json();
}

// The answer is OpenAI's error object with these.
void expect_error(const RawAnswer& answer, int status, const std::string& param = "", const std::string& code = "") {
  EXPECT_EQ(answer.status, status) << answer.body;
  const Json json = body_of(answer);
  ASSERT_TRUE(json.contains("error")) << answer.body;
  const Json& error = json["error"];
  EXPECT_FALSE(error["message"].get<std::string>().empty());
  EXPECT_EQ(error["type"], status >= 500 ? "server_error" : "invalid_request_error");
  EXPECT_EQ(error["param"], param.empty() ? Json() : Json(param)) << answer.body;
  EXPECT_EQ(error["code"], code.empty() ? Json() : Json(code));
}

const std::string kHello = R"({"model":"mock","prompt":"Hello","max_tokens":5})";

class ServerHttp : public ::testing::Test {
 protected:
  RunningServer s;
};

TEST_F(ServerHttp, ACompletion) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"model":"mock","prompt":"Hello","max_tokens":7,"temperature":0})");
  const RawAnswer answer = client.read_answer();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("content-type"), "application/json");
  const Json json = body_of(answer);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "mock");
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_GT(json["created"].get<int64_t>(), 1'600'000'000);
  ASSERT_EQ(json["choices"].size(), 1u);
  EXPECT_EQ(json["choices"][0]["text"], "HelloHe");
  EXPECT_EQ(json["choices"][0]["index"], 0);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,)"
                                       R"("prompt_tokens_details":{"cached_tokens":1}})"));
}

TEST_F(ServerHttp, PromptsAsTokensAndSeveralAtOnce) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":[[72,105],[66]],"max_tokens":3})");
  const Json json = body_of(client.read_answer());
  ASSERT_EQ(json["choices"].size(), 2u) << json;
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["text"].get<std::string>(), s.tokenizer->decode(std::vector<int32_t>{66, 66, 66}));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
}

TEST_F(ServerHttp, SamplingParametersReachTheEngine) {
  RawClient client(s.port);
  client.post("/v1/completions",
              R"({"prompt":"Hi","max_tokens":3,"temperature":0.5,"top_p":0.25,"top_k":4,"min_p":0.125,"seed":9,)"
              R"("ignore_eos":true,"stop_token_ids":[7],"frequency_penalty":0.5,"presence_penalty":-0.25,)"
              R"("repetition_penalty":1.5,"logit_bias":{"3":4},"min_tokens":2,"logprobs":1,"prompt_logprobs":2})");
  ASSERT_EQ(client.read_answer().status, 200);
  const engine::Request& r = s.engine->last_request;
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.25f);
  EXPECT_EQ(r.sampling.top_k, 4);
  EXPECT_EQ(r.sampling.min_p, 0.125f);
  EXPECT_EQ(r.sampling.seed, 9u);
  EXPECT_TRUE(r.ignore_eos);
  EXPECT_EQ(r.stop_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(r.sampling.presence_penalty, -0.25f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.5f);
  ASSERT_EQ(r.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(r.sampling.logit_bias[0].token, 3);
  EXPECT_EQ(r.min_tokens, 2);
  EXPECT_EQ(r.logprobs, 1);
  EXPECT_EQ(r.prompt_logprobs, 2);
}

TEST_F(ServerHttp, ChoicesOfEachPrompt) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":["abc","xy"],"max_tokens":3,"n":2,"user":"me","priority":3})");
  const Json json = body_of(client.read_answer());
  ASSERT_EQ(json["choices"].size(), 4u) << json;
  const char* texts[] = {"abc", "bca", "xyx", "yxy"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["text"], texts[i]);
    EXPECT_EQ(json["choices"][i]["index"], i);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);  // each prompt once
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(s.engine->last_request.num_choices, 2);
  EXPECT_EQ(s.engine->last_request.priority, 3);
  EXPECT_EQ(s.engine->last_request.client, "\nme");
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"n":3})");
  EXPECT_EQ(body_of(client.read_answer())["choices"][2]["message"]["content"], "er");
}

// The mock engine's first choices are the likeliest.
TEST_F(ServerHttp, BestOfGivesTheLikeliest) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"abcd","max_tokens":2,"n":2,"best_of":4})");
  const Json json = body_of(client.read_answer());
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][1]["text"], "bc");
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);  // all that were made
}

// A stop string ends its own choice alone.
TEST_F(ServerHttp, AChoiceStopsAlone) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"abcd","max_tokens":6,"n":2,"stop":["da"]})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "abc");
  EXPECT_EQ(json["choices"][1]["text"], "bc");
  EXPECT_EQ(s.engine->num_running(), 0);
}

TEST_F(ServerHttp, LogprobsOfACompletion) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"ab","max_tokens":3,"logprobs":2})");
  EXPECT_EQ(body_of(client.read_answer())["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["a","b","a"],"token_logprobs":[-0.5,-0.5,-0.5],)"
                        R"("top_logprobs":[{"a":-0.5,"b":-1.5},{"b":-0.5,"c":-1.5},{"a":-0.5,"b":-1.5}],)"
                        R"("text_offset":[0,1,2]})"));
}

// They went past the text's end: each part of a character counted as one.
TEST_F(ServerHttp, OffsetsBehindACharacterOfSeveralTokensAreThoseOfTheText) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"\u00e9!\ud83d\ude00?","max_tokens":8,"logprobs":0})");
  const Json choice = body_of(client.read_answer())["choices"][0];
  EXPECT_EQ(choice["text"], "\xc3\xa9!\xf0\x9f\x98\x80?");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,1,1,2,3,3,3,3]"));
}

// The prompt's first token has none; with max_tokens 0 the prompt alone is scored.
TEST_F(ServerHttp, AnEchoedPromptComesFirstWithItsLogprobs) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":1,"logprobs":0,"echo":true})");
  const Json choice = body_of(client.read_answer())["choices"][0];
  EXPECT_EQ(choice["text"], "xyx");
  EXPECT_EQ(choice["logprobs"], Json::parse(R"({"tokens":["x","y","x"],"token_logprobs":[null,-0.5,-0.5],)"
                                            R"("top_logprobs":[null,{"y":-0.5},{"x":-0.5}],"text_offset":[0,1,2]})"));
  client.post("/v1/completions", R"({"prompt":"xy","max_tokens":0,"logprobs":0,"echo":true})");
  const Json scored = body_of(client.read_answer());
  EXPECT_EQ(scored["choices"][0]["text"], "xy");
  EXPECT_EQ(scored["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["tokens"], Json::parse(R"(["x","y"])"));
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
}

TEST_F(ServerHttp, LogprobsOfAChat) {
  RawClient client(s.port);
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"logprobs":true,)"
                                      R"("top_logprobs":2,"prompt_logprobs":0})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(
      json["choices"][0]["logprobs"],
      Json::parse(R"({"content":[{"token":"u","logprob":-0.5,"bytes":[117],"top_logprobs":[)"
                  R"({"token":"u","logprob":-0.5,"bytes":[117]},{"token":"v","logprob":-1.5,"bytes":[118]}]}]})"));
  ASSERT_EQ(json["prompt_logprobs"].size(), json["usage"]["prompt_tokens"]);
  EXPECT_TRUE(json["prompt_logprobs"][0].is_null());
  EXPECT_EQ(json["prompt_logprobs"][1], Json::parse(R"({"115":{"logprob":-0.5,"rank":1,"decoded_token":"s"}})"));
}

TEST_F(ServerHttp, PromptLogprobsOfACompletion) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":["ab","c"],"max_tokens":1,"prompt_logprobs":2})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["prompt_logprobs"],
            Json::parse(R"([null,{"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"},)"
                        R"("99":{"logprob":-1.5,"rank":2,"decoded_token":"c"}}])"));
  EXPECT_EQ(json["choices"][1]["prompt_logprobs"], Json::parse("[null]"));
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
}

TEST_F(ServerHttp, AnEndTokenStops) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"ab<|end|>","max_tokens":9})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServerHttp, AStopStringStopsAndFreesTheRequest) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"one two END","max_tokens":4000,"stop":[" END"]})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "one two");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 11);
  EXPECT_EQ(s.engine->num_cancelled, 1);
}

// Short bodies are worked on by the IO thread, long ones by the worker.
TEST_F(ServerHttp, ARequestThatMakesAHandlerThrowFailsAlone) {
  for (const size_t length : {10u, 20'000u}) {
    RawClient client(s.port);
    const std::string content = "THROW" + std::string(length, 'x');
    client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + content + R"("}]})");
    expect_error(client.read_answer(), 500);
    RawClient other(s.port);
    other.post("/v1/completions", kHello);
    EXPECT_EQ(other.read_answer().status, 200);
  }
}

TEST_F(ServerHttp, Chat) {
  RawClient client(s.port);
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":8})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["choices"][0]["message"], Json::parse(R"({"role":"assistant","content":"user: hi"})"));
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"RAISE"}]})");
  expect_error(client.read_answer(), 400, "messages");
}

TEST_F(ServerHttp, Models) {
  RawClient client(s.port);
  client.get("/v1/models");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["data"][0]["id"], "mock");
  EXPECT_EQ(json["data"][0]["max_model_len"], 4096);
  client.get("/v1/models/mock");
  EXPECT_EQ(body_of(client.read_answer())["id"], "mock");
  client.get("/v1/models/m%6Fck");
  EXPECT_EQ(body_of(client.read_answer())["id"], "mock");
  client.get("/v1/models/other");
  expect_error(client.read_answer(), 404, "model", "model_not_found");
}

TEST_F(ServerHttp, TokenizeAndBack) {
  RawClient client(s.port);
  client.post("/tokenize", R"({"prompt":"ab<|end|>"})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["count"], 3);
  client.post("/detokenize", Json({{"tokens", json["tokens"]}}).dump());
  EXPECT_EQ(body_of(client.read_answer())["prompt"], "ab<|end|>");
}

TEST_F(ServerHttp, HealthAndMetrics) {
  RawClient client(s.port);
  client.post("/v1/completions", kHello);
  client.read_answer();
  client.get("/health");
  RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(body_of(answer), Json::parse(R"({"status":"ok","live":true,"ready":true,"null_block_clean":true})"));
  client.get("/metrics");
  answer = client.read_answer();
  EXPECT_THAT(answer.header("content-type"), StartsWith("text/plain"));
  for (const char* line :
       {"blockzero:null_block_clean{model_name=\"mock\"} 1\n",
        "blockzero:num_requests_running{model_name=\"mock\"} 0\n",
        "blockzero:generation_tokens_total{model_name=\"mock\"} 5\n",
        "blockzero:steps_total{model_name=\"mock\",graph_key=\"decode/8\"} ",
        "blockzero:padded_rows_total{model_name=\"mock\"} 0\n", "blockzero:dummy_steps_total{model_name=\"mock\"} 0\n",
        "blockzero:request_success_total{model_name=\"mock\",finished_reason=\"length\"} 1\n",
        "blockzero:time_to_first_token_seconds_count{model_name=\"mock\"} 1\n",
        "blockzero:inter_token_latency_seconds_count{model_name=\"mock\"} 4\n",
        "blockzero:e2e_request_latency_seconds_bucket{model_name=\"mock\",le=\"+Inf\"} 1\n",
        "blockzero:http_requests_total{model_name=\"mock\",handler=\"/health\",status=\"200\"} 1\n",
        "blockzero:prefix_cache_hits_total{model_name=\"mock\"} 20\n",
        "blockzero:prefix_cache_misses_total{model_name=\"mock\",reason=\"evicted\"} 2\n",
        "# TYPE blockzero:time_to_first_token_seconds histogram\n"}) {
    EXPECT_THAT(answer.body, HasSubstr(line));
  }
  s.engine->dirty_null_block();
  client.get("/health");
  answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(body_of(answer)["null_block_clean"], false);
}

TEST_F(ServerHttp, ThePage) {
  RawClient client(s.port);
  client.get("/");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.header("content-type"), StartsWith("text/html"));
  EXPECT_THAT(answer.header("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(answer.body, HasSubstr("/v1/chat/completions"));
  EXPECT_EQ(answer.body.find("http://"), std::string::npos);  // nothing from outside
  EXPECT_EQ(answer.body.find("https://"), std::string::npos);
}

// --- Errors
// -----------------------------------------------------------------------------------------------------------

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

// --- Framing
// ----------------------------------------------------------------------------------------------------------

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

// --- Options
// ----------------------------------------------------------------------------------------------------------

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
  expect_error(c.read_answer(), 503);
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
  expect_error(b.read_answer(), 503);
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
