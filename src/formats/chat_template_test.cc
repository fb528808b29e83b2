#include "formats/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_files.h"
#include "formats/tokenizer.h"

namespace bz::formats {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// What a template makes of no messages.
Result<std::string> render(const std::string& source, const ChatTemplateOptions& options = {},
                           const ordered_json& messages = ordered_json::array()) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->render(messages, options);
}

void expect_error(const std::string& source, const std::string& part, const ChatTemplateOptions& options = {}) {
  auto text = render(source, options);
  ASSERT_FALSE(text.ok()) << source.substr(0, 200) << "\nexpected an error with: " << part
                          << "\ngot: " << text->substr(0, 200);
  EXPECT_THAT(text.status().message(), HasSubstr(part)) << source.substr(0, 200);
  EXPECT_EQ(text.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, RendersSmolLM2LikeTheReference) {
  const auto golden = ordered_json::parse(read_test_file(golden_path("smollm2/chat_template.json")));
  auto parsed = ChatTemplate::parse(golden["template"].get<std::string>());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  auto file = GgufFile::open(smollm2_path());
  ASSERT_TRUE(file.ok()) << file.status().message() << kFetchHint;
  EXPECT_EQ(*file->get_string("tokenizer.chat_template"), golden["template"].get<std::string>());
  auto tokenizer = load_tokenizer(*file);
  ASSERT_TRUE(tokenizer.ok());
  ASSERT_GE(golden["cases"].size(), 20u);
  for (const auto& c : golden["cases"]) {
    ChatTemplateOptions options;
    options.add_generation_prompt = c["add_generation_prompt"].get<bool>();
    options.bos_token = golden["variables"]["bos_token"].get<std::string>();
    options.eos_token = golden["variables"]["eos_token"].get<std::string>();
    auto text = parsed->render(c["messages"], options);
    ASSERT_TRUE(text.ok()) << c["name"] << ": " << text.status().message();
    EXPECT_EQ(*text, c["text"].get<std::string>()) << c["name"];
    EXPECT_EQ((*tokenizer)->encode(*text, {.parse_special = true, .add_bos = false}),
              c["ids"].get<std::vector<int32_t>>())
        << c["name"];
  }
}

// Every construct, against Jinja2 itself (tools/oracle/make_jinja_golden.py).
TEST(ChatTemplate, AgreesWithJinja2) {
  const auto golden = ordered_json::parse(read_test_file(golden_path("jinja.json")));
  ASSERT_GE(golden["cases"].size(), 200u);
  for (const auto& c : golden["cases"]) {
    const auto source = c["template"].get<std::string>();
    ChatTemplateOptions options;
    options.bos_token = golden["bos_token"].get<std::string>();
    options.eos_token = golden["eos_token"].get<std::string>();
    options.tools = c["tools"];
    auto text = render(source, options, golden["messages"]);
    if (c.contains("error")) {
      EXPECT_FALSE(text.ok()) << source << "\nJinja2 says: " << c["error"] << "\nwe made: " << *text;
    } else if (text.ok()) {
      EXPECT_EQ(*text, c["text"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << text.status().message();
    }
  }
}

TEST(ChatTemplate, ErrorsNameLineAndReason) {
  expect_error("a\nb\n{{ 1 + }}", "chat template, line 3: expected an expression, found }}");
  expect_error("{% if x %}\n\n{{ y }}", "line 3: a block is not closed with {% endif %}");
  expect_error("\n{{ missing.x }}", "line 2: 'missing' is undefined");
  expect_error("{{ 'x' | sparkle }}", "filter 'sparkle' is not supported");
  expect_error("{{ 'x' is shiny }}", "test 'shiny' is not supported");
  expect_error("{% include 'x' %}", "statement 'include' is not supported");
  expect_error("{{ raise_exception('Only\nuser turns') }}", "refuses the messages: Only\\x0auser turns");
}

TEST(ChatTemplate, VariablesAndTime) {
  ChatTemplateOptions options;
  options.variables = {{"enable_thinking", false}, {"budget", 7}};
  options.unix_seconds = 86400 * 365;  // noon or midnight, it is the first days of 1971 everywhere
  auto text = render("{{ enable_thinking }} {{ budget + 1 }} {{ strftime_now('%Y') }} {{ tools is none }}", options);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_THAT(*text, testing::AnyOf("False 8 1971 True", "False 8 1970 True"));
  options.add_generation_prompt = false;
  EXPECT_EQ(*render("{{ add_generation_prompt }}", options), "False");
}

// A template may come from anyone: none may run for ever, fill the memory or the stack.
TEST(ChatTemplate, HostileTemplatesAreStopped) {
  ChatTemplateOptions small;
  small.limits = {.max_steps = 100'000, .max_output_bytes = 10'000, .max_heap_bytes = 1 << 20};
  expect_error("{% for i in range(1000000000000) %}{% endfor %}", "", small);
  expect_error("{% set r = range(1000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}", "steps", small);
  expect_error("{% for i in range(1000) %}{{ 'some text' * 10 }}{% endfor %}", "output", small);
  expect_error("{{ 'x' * 1000000000000 }}", "memory", small);
  expect_error("{{ [0] * 9223372036854775807 }}", "", small);
  expect_error("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
               "memory", small);
  expect_error("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
               "memory", small);
  expect_error(
      "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x | replace('', ns.x) %}{% endfor %}",
      "memory", small);
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
  expect_error("{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}", "nested too deeply");
  expect_error("{{ " + std::string(100'000, '[') + std::string(100'000, ']') + " }}", "nested too deeply");
  expect_error("{{ " + std::string(100'000, '-') + "1 }}", "nested too deeply");
  std::string sum = "{{ 1";
  std::string nots = "{{ ";
  std::string filters = "{{ x";
  std::string ifs;
  for (int i = 0; i < 20'000; ++i) {
    sum += " + 1";
    nots += "not ";
    filters += " | trim";
    ifs += "{% if 1 %}";
  }
  expect_error(sum + " }}", "too long");
  expect_error(nots + "1 }}", "nested too deeply");
  expect_error(filters + " }}", "too long");
  expect_error(ifs, "nested too deeply");
  // Values that share parts: walking them all would take 2^60 steps.
  const std::string shared =
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, "
      "ns.y] %}{% endfor %}";
  expect_error(shared + "{{ ns.x == ns.y }}", "steps", small);
  expect_error(shared + "{{ ns.x }}", "too long", small);
  expect_error(shared + "{{ ns.x | tojson }}", "too long", small);
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(3000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  expect_error(deep + "{{ ns.x }}", "nested too deeply", small);
  EXPECT_TRUE(render("{% set ns = namespace(me=1) %}{% set ns.me = ns %}{{ ns.me }}").ok()) << "a cycle is no leak";
  expect_error(std::string(2 << 20, 'x'), "at most 1048576");
}

TEST(ChatTemplate, DeepInputsAreRefused) {
  ordered_json deep = "x";
  for (int i = 0; i < 200; ++i) deep = ordered_json::array({deep});
  auto parsed = ChatTemplate::parse("{{ messages }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->render(deep).status().message(), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace bz::formats
