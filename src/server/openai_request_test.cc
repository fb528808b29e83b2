#include "server/openai_request.h"

#include <gtest/gtest.h>

namespace bz::server {
namespace {

constexpr RequestLimits kLimits{.max_model_len = 100, .vocab_size = 50};

// {"prompt": "x", <more>}
GenerationRequest completion(const std::string& more) {
  auto r = parse_completion_request("{\"prompt\": \"x\"" + (more.empty() ? "" : ", " + more) + "}", kLimits);
  EXPECT_TRUE(r.ok()) << more << ": " << r.status().message();
  return r.ok() ? std::move(r).value() : GenerationRequest{};
}

struct BadCase {
  const char* name;
  std::string field;  // what the error must name
  std::string json;   // added to a good request
};

void expect_bad(const Result<GenerationRequest>& r, const std::string& field, const std::string& json) {
  ASSERT_FALSE(r.ok()) << json;
  EXPECT_EQ(r.status().param(), field) << json << ": " << r.status().message();
  EXPECT_EQ(r.status().code(), StatusCode::kInvalidArgument);
  // One line that says which field.
  EXPECT_NE(r.status().message().find(field), std::string::npos) << r.status().message();
  EXPECT_EQ(r.status().message().find('\n'), std::string::npos);
}

TEST(CompletionRequest, Defaults) {
  const GenerationRequest r = completion("");
  EXPECT_FALSE(r.chat || r.stream || r.ignore_eos || r.has_seed || r.include_usage);
  EXPECT_FALSE(r.max_tokens);
  EXPECT_EQ(r.sampling.temperature, 1.0f);
  EXPECT_EQ(r.sampling.top_p, 1.0f);
  ASSERT_EQ(r.prompts.size(), 1u);
  EXPECT_EQ(r.prompts[0].text, "x");
}

TEST(CompletionRequest, EveryFieldIsRead) {
  const GenerationRequest r = completion(
      R"("model":"m","max_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":3,"min_p":0.125,"seed":-1,"ignore_eos":true,)"
      R"("stop":["a","b"],"stop_token_ids":[4,5],"stream":true,"stream_options":{"include_usage":true},)"
      R"("add_special_tokens":false)");
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.25f);
  EXPECT_EQ(r.sampling.top_k, 3);
  EXPECT_EQ(r.sampling.min_p, 0.125f);
  EXPECT_TRUE(r.has_seed);
  EXPECT_EQ(r.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(r.ignore_eos && r.stream && r.include_usage);
  EXPECT_EQ(r.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.stop_token_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_FALSE(r.add_special_tokens);
}

TEST(CompletionRequest, HarmlessValuesAreAccepted) {
  completion(
      R"("n":1,"best_of":1,"echo":false,"logprobs":null,"frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},)"
      R"("suffix":"","user":"me","response_format":{"type":"text"},"stop":null,"top_k":-1,"seed":null,"max_tokens":16.0,)"
      R"("min_tokens":0,"repetition_penalty":1.0,"grammar":"","json_schema":{},"repeat_penalty":1,"typical_p":1.0,"mirostat":0,)"
      R"("lora":[],"return_token_ids":false,"no_such_field":[1,{"a":2}],"stop_token_ids":[],"stop":[])");
}

TEST(CompletionRequest, ItsLengthMayHaveTheNameThatChatsUse) {
  const GenerationRequest r = completion(R"("max_tokens":9,"max_completion_tokens":3)");
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.max_tokens_field, "max_completion_tokens");
}

TEST(CompletionRequest, PenaltiesAndLogprobs) {
  const GenerationRequest r = completion(
      R"("frequency_penalty":-2,"presence_penalty":0.5,"repetition_penalty":1.25,"logit_bias":{"5":-100,"7":2.5},)"
      R"("min_tokens":3,"logprobs":4,"prompt_logprobs":2,"echo":true,"max_tokens":0)");
  EXPECT_EQ(r.sampling.frequency_penalty, -2.0f);
  EXPECT_EQ(r.sampling.presence_penalty, 0.5f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.25f);
  ASSERT_EQ(r.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(r.sampling.logit_bias[0].token, 5);
  EXPECT_EQ(r.sampling.logit_bias[1].bias, 2.5f);
  EXPECT_EQ(r.min_tokens, 3);
  EXPECT_EQ(r.logprobs, 4);
  EXPECT_EQ(r.prompt_logprobs, 2);
  EXPECT_TRUE(r.echo);
  EXPECT_EQ(r.max_tokens, 0);
}

TEST(CompletionRequest, Choices) {
  const GenerationRequest r = completion(R"("n":2,"best_of":5,"priority":-7,"user":"me")");
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.best_of, 5);
  EXPECT_EQ(r.priority, -7);
  EXPECT_EQ(r.user, "me");
  EXPECT_EQ(completion(R"("n":3)").best_of, 3);
  std::string prompts = "\"x\"";
  for (int i = 1; i < 100; ++i) prompts += ",\"x\"";
  expect_bad(parse_completion_request("{\"n\":11,\"prompt\":[" + prompts + "]}", kLimits), "n", "too many answers");
}

TEST(CompletionRequest, PromptForms) {
  const auto prompts = [](const std::string& json) {
    auto r = parse_completion_request("{\"prompt\":" + json + "}", kLimits);
    EXPECT_TRUE(r.ok()) << json;
    return r.ok() ? r->prompts : std::vector<Prompt>{};
  };
  EXPECT_EQ(prompts("[1,2,3]")[0].tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(prompts("[\"a\",\"b\"]")[1].text, "b");
  EXPECT_EQ(prompts("[[1],[2,3]]")[1].tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(prompts("[\"a\",[2]]").size(), 2u);
}

TEST(CompletionRequest, BadPrompts) {
  for (const char* prompt :
       {"null", "5", "true", "{}", "[]", "[[]]", "[1,\"a\"]", "[\"a\",1]", "[1,-1]", "[50]", "[1.5]", "[1e30]",
        "[null]", "[99999999999999999999]", "[true]", "[{\"a\":1}]", "[[1],[[2]]]"}) {
    const auto r = parse_completion_request(std::string("{\"prompt\":") + prompt + "}", kLimits);
    expect_bad(r, "prompt", prompt);
  }
  expect_bad(parse_completion_request("{}", kLimits), "prompt", "missing");
  std::string many = "[\"a\"";
  for (int i = 0; i < 128; ++i) many += ",\"a\"";
  expect_bad(parse_completion_request("{\"prompt\":" + many + "]}", kLimits), "prompt", "129 prompts");
}

const BadCase kBadValues[] = {
    {"max_tokens negative", "max_tokens", R"("max_tokens":-1)"},
    {"max_tokens zero", "max_tokens", R"("max_tokens":0)"},
    {"max_tokens over the context", "max_tokens", R"("max_tokens":101)"},
    {"max_tokens huge", "max_tokens", R"("max_tokens":99999999999999999999)"},
    {"max_tokens huge float", "max_tokens", R"("max_tokens":1e300)"},
    {"max_tokens fraction", "max_tokens", R"("max_tokens":1.5)"},
    {"max_tokens string", "max_tokens", R"("max_tokens":"4")"},
    {"max_tokens bool", "max_tokens", R"("max_tokens":true)"},
    {"max_tokens array", "max_tokens", R"("max_tokens":[4])"},
    {"temperature negative", "temperature", R"("temperature":-0.1)"},
    {"temperature high", "temperature", R"("temperature":2.1)"},
    {"temperature string", "temperature", R"("temperature":"0")"},
    {"top_p zero", "top_p", R"("top_p":0)"},
    {"top_p vanishing", "top_p", R"("top_p":1e-300)"},
    {"top_p high", "top_p", R"("top_p":1.01)"},
    {"top_k below -1", "top_k", R"("top_k":-2)"},
    {"top_k fraction", "top_k", R"("top_k":0.5)"},
    {"min_p one", "min_p", R"("min_p":1)"},
    {"min_p negative", "min_p", R"("min_p":-0.5)"},
    {"seed string", "seed", R"("seed":"1")"},
    {"seed over 64 bits", "seed", R"("seed":99999999999999999999)"},
    {"ignore_eos number", "ignore_eos", R"("ignore_eos":1)"},
    {"stream string", "stream", R"("stream":"yes")"},
    {"stream_options without stream", "stream_options", R"("stream_options":{"include_usage":true})"},
    {"stream_options array", "stream_options", R"("stream":true,"stream_options":[])"},
    {"include_usage string", "stream_options.include_usage", R"("stream":true,"stream_options":{"include_usage":"x"})"},
    {"stop number", "stop", R"("stop":5)"},
    {"stop empty", "stop", R"("stop":"")"},
    {"stop holds empty", "stop", R"("stop":["a",""])"},
    {"stop holds number", "stop", R"("stop":["a",1])"},
    {"stop many", "stop", R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
    {"stop long", "stop", "\"stop\":\"" + std::string(257, 's') + "\""},
    {"stop_token_ids number", "stop_token_ids", R"("stop_token_ids":5)"},
    {"stop_token_ids outside", "stop_token_ids", R"("stop_token_ids":[50])"},
    {"stop_token_ids negative", "stop_token_ids", R"("stop_token_ids":[-1])"},
    {"model number", "model", R"("model":5)"},
    {"n zero", "n", R"("n":0)"},
    {"n many", "n", R"("n":129)"},
    {"priority low", "priority", R"("priority":-101)"},
    {"user number", "user", R"("user":5)"},
    {"n string", "n", R"("n":"1")"},
    {"best_of below n", "best_of", R"("n":3,"best_of":2)"},
    {"best_of streamed", "best_of", R"("n":2,"best_of":3,"stream":true)"},
    {"frequency_penalty high", "frequency_penalty", R"("frequency_penalty":2.5)"},
    {"presence_penalty low", "presence_penalty", R"("presence_penalty":-2.1)"},
    {"repetition_penalty zero", "repetition_penalty", R"("repetition_penalty":0)"},
    {"repetition_penalty vanishing", "repetition_penalty", R"("repetition_penalty":1e-300)"},
    {"logit_bias array", "logit_bias", R"("logit_bias":[[5,1]])"},
    {"logit_bias outside", "logit_bias", R"("logit_bias":{"50":1})"},
    {"logit_bias of a word", "logit_bias", R"("logit_bias":{"hi":1})"},
    {"logit_bias of half an id", "logit_bias", R"("logit_bias":{"5x":1})"},
    {"logit_bias high", "logit_bias", R"("logit_bias":{"5":101})"},
    {"logit_bias string", "logit_bias", R"("logit_bias":{"5":"1"})"},
    {"min_tokens negative", "min_tokens", R"("min_tokens":-1)"},
    {"prompt_logprobs many", "prompt_logprobs", R"("prompt_logprobs":21)"},
    {"prompt_logprobs streamed", "prompt_logprobs", R"("prompt_logprobs":1,"stream":true)"},
    {"response_format json", "response_format", R"("response_format":{"type":"json_object"})"},
    {"response_format of no type", "response_format", R"("response_format":{"json_object":false})"},
    {"guided_json", "guided_json", R"("guided_json":{"type":"object"})"},
    {"grammar", "grammar", R"("grammar":"root ::= \"x\"")"},
    {"json_schema", "json_schema", R"("json_schema":{"type":"object"})"},
    {"regex", "regex", R"("regex":"a+")"},
    {"repeat_penalty", "repeat_penalty", R"("repeat_penalty":1.1)"},
    {"typical_p", "typical_p", R"("typical_p":0.5)"},
    {"mirostat", "mirostat", R"("mirostat":2)"},
    {"dry_multiplier", "dry_multiplier", R"("dry_multiplier":0.8)"},
    {"xtc_probability", "xtc_probability", R"("xtc_probability":0.5)"},
    {"n_predict", "n_predict", R"("n_predict":5)"},
    {"lora", "lora", R"("lora":[{"id":0}])"},
    {"return_token_ids", "return_token_ids", R"("return_token_ids":true)"},
};

TEST(CompletionRequest, BadValuesNameTheirField) {
  for (const BadCase& c : kBadValues) {
    SCOPED_TRACE(c.name);
    expect_bad(parse_completion_request("{\"prompt\":\"x\"," + c.json + "}", kLimits), c.field, c.json);
    expect_bad(parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + c.json + "}", kLimits), c.field,
               c.json);
  }
}

TEST(CompletionRequest, BadFieldsOfItsOwn) {
  for (const BadCase& c : {BadCase{"", "echo", R"("echo":1)"}, BadCase{"", "logprobs", R"("logprobs":true)"},
                           BadCase{"", "logprobs", R"("logprobs":21)"}, BadCase{"", "suffix", R"("suffix":"s")"},
                           BadCase{"", "top_logprobs", R"("top_logprobs":2)"}}) {
    expect_bad(parse_completion_request("{\"prompt\":\"x\"," + c.json + "}", kLimits), c.field, c.json);
  }
}

TEST(CompletionRequest, BodiesThatAreNoObject) {
  for (const char* body : {"", "[]", "5", "\"x\"", "null", "{", "{\"prompt\":NaN}", "{\"prompt\":\"\xff\"}"}) {
    const auto r = parse_completion_request(body, kLimits);
    ASSERT_FALSE(r.ok()) << body;
    EXPECT_EQ(r.status().param(), "");
    EXPECT_EQ(r.status().code(), StatusCode::kInvalidArgument);
  }
}

GenerationRequest chat(const std::string& json) {
  auto r = parse_chat_request(json, kLimits);
  EXPECT_TRUE(r.ok()) << json << ": " << r.status().message();
  return r.ok() ? std::move(r).value() : GenerationRequest{};
}

TEST(ChatRequest, Messages) {
  const GenerationRequest r = chat(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"text","text":"b"}]},{"role":"assistant","content":null}],"max_completion_tokens":5,"max_tokens":3})");
  ASSERT_EQ(r.messages.size(), 3u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "ab");
  EXPECT_EQ(r.messages[2].content, "");
  EXPECT_EQ(r.max_tokens, 5);
  EXPECT_TRUE(r.chat);
}

TEST(ChatRequest, HarmlessValuesAreAccepted) {
  chat(R"({"messages":[{"role":"user","content":"x","name":"n"}],"tools":[],"tool_choice":"none","logprobs":false,)"
       R"("modalities":["text"],"n":1,"parallel_tool_calls":true,"store":false,"metadata":{"a":"b"}})");
}

TEST(ChatRequest, Logprobs) {
  const std::string start = R"({"messages":[{"role":"user","content":"x"}],)";
  EXPECT_EQ(chat(start + R"("logprobs":true})").logprobs, 0);
  EXPECT_EQ(chat(start + R"("logprobs":true,"top_logprobs":20})").logprobs, 20);
  EXPECT_EQ(chat(start + R"("top_logprobs":0})").logprobs, -1);
}

TEST(ChatRequest, BadMessagesNameTheirPlace) {
  const BadCase cases[] = {
      {"missing", "messages", R"("x":1)"},
      {"string", "messages", R"("messages":"hi")"},
      {"empty", "messages", R"("messages":[])"},
      {"object", "messages", R"("messages":{"role":"user","content":"x"})"},
      {"of strings", "messages[0]", R"("messages":["hi"])"},
      {"no role", "messages[0].role", R"("messages":[{"content":"x"}])"},
      {"role number", "messages[0].role", R"("messages":[{"role":5,"content":"x"}])"},
      {"role unknown", "messages[0].role", R"("messages":[{"role":"wizard","content":"x"}])"},
      {"no content", "messages[1].content", R"("messages":[{"role":"user","content":"x"},{"role":"user"}])"},
      {"content number", "messages[0].content", R"("messages":[{"role":"user","content":5}])"},
      {"content object", "messages[0].content", R"("messages":[{"role":"user","content":{"text":"x"}}])"},
      {"an image", "messages[0].content",
       R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"},
      {"a part's text", "messages[0].content", R"("messages":[{"role":"user","content":[{"type":"text","text":5}]}])"},
      {"tool calls", "messages[0].tool_calls",
       R"("messages":[{"role":"assistant","content":"x","tool_calls":[{"id":"1"}]}])"},
  };
  for (const BadCase& c : cases) {
    SCOPED_TRACE(c.name);
    expect_bad(parse_chat_request("{" + c.json + "}", kLimits), c.field, c.json);
  }
}

TEST(ChatRequest, BadFieldsOfItsOwn) {
  for (const BadCase& c : {
           BadCase{"", "tools", R"("tools":[{"type":"function"}])"},
           BadCase{"", "tool_choice", R"("tool_choice":"required")"},
           BadCase{"", "logprobs", R"("logprobs":5)"},
           BadCase{"", "top_logprobs", R"("top_logprobs":2)"},
           BadCase{"", "top_logprobs", R"("top_logprobs":21,"logprobs":true)"},
           BadCase{"", "best_of", R"("best_of":2)"},
           BadCase{"", "modalities", R"("modalities":["text","audio"])"},
           BadCase{"", "max_completion_tokens", R"("max_completion_tokens":-1)"},
           BadCase{"", "chat_template", R"("chat_template":"{{ x }}")"},
           BadCase{"", "add_generation_prompt", R"("add_generation_prompt":"no")"},
       }) {
    expect_bad(parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + c.json + "}", kLimits), c.field,
               c.json);
  }
}

TEST(TokenizerRequests, AreChecked) {
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":"abc"})")->text, "abc");
  EXPECT_EQ(parse_tokenize_request(R"({})").status().param(), "prompt");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt":5})").status().param(), "prompt");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,2]})", kLimits)->tokens.size(), 2u);
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[50]})", kLimits).status().param(), "tokens");
  EXPECT_EQ(parse_detokenize_request(R"({})", kLimits).status().param(), "tokens");
}

}  // namespace
}  // namespace bz::server
