// What server tests read out of an answer.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/raw_client.h"

namespace bz::server {

// A request that any test may send.
inline const std::string kHello = R"({"model":"mock","prompt":"Hello","max_tokens":5})";

inline Json body_of(const RawAnswer& answer) {
  auto json = parse_json(answer.body);
  EXPECT_TRUE(json.ok()) << answer.head << answer.body;
  return json.ok() ? std::move(json).value() : Json();
}

// The answer is OpenAI's error object with these.
inline void expect_error(const RawAnswer& answer, int status, const std::string& param = "",
                         const std::string& code = "") {
  EXPECT_EQ(answer.status, status) << answer.body;
  const Json json = body_of(answer);
  ASSERT_TRUE(json.contains("error")) << answer.body;
  const Json& error = json["error"];
  EXPECT_FALSE(error["message"].get<std::string>().empty());
  EXPECT_EQ(error["type"], status >= 500 ? "server_error" : "invalid_request_error");
  EXPECT_EQ(error["param"], param.empty() ? Json() : Json(param)) << answer.body;
  EXPECT_EQ(error["code"], code.empty() ? Json() : Json(code));
}

// The events of a stream's body: "data: " stripped, [DONE] as null.
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = body.substr(at, end - at);
    EXPECT_THAT(event, ::testing::StartsWith("data: "));
    events.push_back(event == "data: [DONE]" ? Json() : Json::parse(event.substr(6)));
    at = end + 2;
  }
  return events;
}

// The text of one choice.
inline std::string text_of(const std::vector<Json>& events, size_t index = 0) {
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

// A request for a stream.
inline std::string stream_body(const std::string& prompt, int max_tokens, const std::string& more = "") {
  return fmt::format(R"({{"prompt":"{}","max_tokens":{},"stream":true{}}})", prompt, max_tokens, more);
}

}  // namespace bz::server
