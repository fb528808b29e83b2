#include "server/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace bz::server {
namespace {

std::string error_of(std::string_view body) {
  const auto parsed = parse_json(body);
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(Json, ParsesAnObject) {
  const auto json = parse_json(R"({"a": [1, "\u00e9"]})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["a"][1], "\xc3\xa9");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* body :
       {"{", "{\"a\":}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":01}", "{'a':1}", "{\"a\":1}x", "\x01", "[1,]",
        "{\"a\":\"\\ud800\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"line\nbreak\"}", "nul"}) {
    EXPECT_NE(error_of(body).find("not valid JSON"), std::string::npos) << body;
  }
  EXPECT_NE(error_of("").find("empty"), std::string::npos);
}

TEST(Json, RefusesANumberOutOfRange) { EXPECT_NE(error_of("{\"a\":1e999}").find("out of range"), std::string::npos); }

TEST(Json, RefusesDeepNestingBeforeBuildingIt) {
  const std::string deep(1'000'000, '[');
  EXPECT_NE(error_of(deep).find("nests deeper than 64"), std::string::npos);
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(error_of(std::string(65, '[') + std::string(65, ']')), "");
  // Brackets in strings do not count.
  EXPECT_EQ(error_of("[\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\"]"), "");
}

TEST(Json, StringsAreEscapedAndAlwaysUtf8) {
  EXPECT_EQ(json_string("a\"b\\c\n\t\x01\x7f"), R"("a\"b\\c\n\t\u0001\u007f")");
  EXPECT_EQ(json_string("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\"");
  EXPECT_EQ(json_string("a\xff"
                        "b\xe2\x82"),
            "\"a\xef\xbf\xbd"
            "b\xef\xbf\xbd\"");
  for (int c = 0; c < 256; ++c) {
    const std::string text = {'x', static_cast<char>(c), 'y'};
    EXPECT_TRUE(parse_json(json_string(text)).ok()) << c;
  }
}

TEST(Json, ShownValuesAreShort) {
  EXPECT_EQ(shown(Json(5)), "5");
  EXPECT_LE(shown(Json(std::string(1000, 'x'))).size(), 64u);
  EXPECT_EQ(shown(Json(std::vector<int>(100, 1))), "an array of 100 values");
}

}  // namespace
}  // namespace bz::server
