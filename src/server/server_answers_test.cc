// What each route answers, over real loopback sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/expect_answer.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServerAnswers : public ::testing::Test {
 protected:
  RunningServer s;
};

TEST_F(ServerAnswers, ACompletion) {
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

TEST_F(ServerAnswers, PromptsAsTokensAndSeveralAtOnce) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":[[72,105],[66]],"max_tokens":3})");
  const Json json = body_of(client.read_answer());
  ASSERT_EQ(json["choices"].size(), 2u) << json;
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["text"].get<std::string>(), s.tokenizer->decode(std::vector<int32_t>{66, 66, 66}));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
}

TEST_F(ServerAnswers, SamplingParametersReachTheEngine) {
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

TEST_F(ServerAnswers, ChoicesOfEachPrompt) {
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
TEST_F(ServerAnswers, BestOfGivesTheLikeliest) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"abcd","max_tokens":2,"n":2,"best_of":4})");
  const Json json = body_of(client.read_answer());
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][1]["text"], "bc");
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);  // all that were made
}

// A stop string ends its own choice alone.
TEST_F(ServerAnswers, AChoiceStopsAlone) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"abcd","max_tokens":6,"n":2,"stop":["da"]})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "abc");
  EXPECT_EQ(json["choices"][1]["text"], "bc");
  EXPECT_EQ(s.engine->num_running(), 0);
}

TEST_F(ServerAnswers, LogprobsOfACompletion) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"ab","max_tokens":3,"logprobs":2})");
  EXPECT_EQ(body_of(client.read_answer())["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["a","b","a"],"token_logprobs":[-0.5,-0.5,-0.5],)"
                        R"("top_logprobs":[{"a":-0.5,"b":-1.5},{"b":-0.5,"c":-1.5},{"a":-0.5,"b":-1.5}],)"
                        R"("text_offset":[0,1,2]})"));
}

// They went past the text's end: each part of a character counted as one.
TEST_F(ServerAnswers, OffsetsBehindACharacterOfSeveralTokensAreThoseOfTheText) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"\u00e9!\ud83d\ude00?","max_tokens":8,"logprobs":0})");
  const Json choice = body_of(client.read_answer())["choices"][0];
  EXPECT_EQ(choice["text"], "\xc3\xa9!\xf0\x9f\x98\x80?");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,1,1,2,3,3,3,3]"));
}

// The prompt's first token has none; with max_tokens 0 the prompt alone is scored.
TEST_F(ServerAnswers, AnEchoedPromptComesFirstWithItsLogprobs) {
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

TEST_F(ServerAnswers, LogprobsOfAChat) {
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

TEST_F(ServerAnswers, PromptLogprobsOfACompletion) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":["ab","c"],"max_tokens":1,"prompt_logprobs":2})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["prompt_logprobs"],
            Json::parse(R"([null,{"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"},)"
                        R"("99":{"logprob":-1.5,"rank":2,"decoded_token":"c"}}])"));
  EXPECT_EQ(json["choices"][1]["prompt_logprobs"], Json::parse("[null]"));
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
}

TEST_F(ServerAnswers, AnEndTokenStops) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"ab<|end|>","max_tokens":9})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(ServerAnswers, AStopStringStopsAndFreesTheRequest) {
  RawClient client(s.port);
  client.post("/v1/completions", R"({"prompt":"one two END","max_tokens":4000,"stop":[" END"]})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["choices"][0]["text"], "one two");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["completion_tokens"], 11);
  EXPECT_EQ(s.engine->num_cancelled, 1);
}

// Short bodies are worked on by the IO thread, long ones by the worker.
TEST_F(ServerAnswers, ARequestThatMakesAHandlerThrowFailsAlone) {
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

TEST_F(ServerAnswers, Chat) {
  RawClient client(s.port);
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":8})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["choices"][0]["message"], Json::parse(R"({"role":"assistant","content":"user: hi"})"));
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"RAISE"}]})");
  expect_error(client.read_answer(), 400, "messages");
}

TEST_F(ServerAnswers, Models) {
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

TEST_F(ServerAnswers, TokenizeAndBack) {
  RawClient client(s.port);
  client.post("/tokenize", R"({"prompt":"ab<|end|>"})");
  const Json json = body_of(client.read_answer());
  EXPECT_EQ(json["count"], 3);
  client.post("/detokenize", Json({{"tokens", json["tokens"]}}).dump());
  EXPECT_EQ(body_of(client.read_answer())["prompt"], "ab<|end|>");
}

TEST_F(ServerAnswers, HealthAndMetrics) {
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

TEST_F(ServerAnswers, ThePage) {
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

}  // namespace
}  // namespace bz::server
