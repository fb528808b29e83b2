// What a client may send: bodies of every route that takes one, and HTTP itself.
#include <algorithm>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "formats/utf8.h"
#include "server/http_parser.h"
#include "server/json.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "targets.h"

namespace bz::fuzz {
namespace {

constexpr server::RequestLimits kLimits{.max_model_len = 4096, .vocab_size = 1000};

bool is_utf8(std::string_view text) { return formats::utf8_valid_prefix(text) == text.size(); }

// A refusal is one line, blames the client, and its answer is JSON whatever the client sent.
void check_refusal(const Status& status) {
  BZ_CHECK_EQ(status.exit_code(), 2);
  BZ_CHECK_MSG(status.message().find('\n') == std::string::npos, "{}", status.message());
  const server::HttpReply reply = server::error_reply(status);
  BZ_CHECK(reply.status >= 400 && reply.status < 500);
  const auto body = server::parse_json(reply.body);
  BZ_CHECK(body.ok() && (*body)["error"]["message"].is_string());
}

void check_tokens(const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) BZ_CHECK(token >= 0 && token < kLimits.vocab_size);
}

void check_request(const server::GenerationRequest& r) {
  const engine::SamplingParams& s = r.sampling;
  BZ_CHECK(s.temperature >= 0 && std::isfinite(s.temperature));
  BZ_CHECK(s.top_p > 0 && s.top_p <= 1);
  BZ_CHECK(s.min_p >= 0 && s.min_p < 1);
  BZ_CHECK_GE(s.top_k, 0);
  if (r.max_tokens) BZ_CHECK(*r.max_tokens >= 0 && *r.max_tokens <= kLimits.max_model_len);
  BZ_CHECK_LE(r.stops.size(), server::kMaxStops);
  for (const std::string& stop : r.stops) {
    BZ_CHECK(!stop.empty() && stop.size() <= server::kMaxStopBytes && is_utf8(stop));
  }
  check_tokens(r.stop_token_ids);
  BZ_CHECK_EQ(r.chat, r.prompts.empty());
  BZ_CHECK_EQ(r.chat, !r.messages.empty());
  for (const server::Prompt& prompt : r.prompts) {
    check_tokens(prompt.tokens);
    BZ_CHECK(prompt.is_text ? is_utf8(prompt.text) : !prompt.tokens.empty());
  }
  for (const server::ChatMessage& m : r.messages) BZ_CHECK(!m.role.empty() && is_utf8(m.content));
}

void generation(const Result<server::GenerationRequest>& request) {
  request.ok() ? check_request(*request) : check_refusal(request.status());
}

// Whatever pieces the bytes come in, the whole requests are the same. (When a broken one is noticed may differ: before
// its header's end, or at it.)
std::vector<std::string> requests_of(std::string_view bytes, size_t piece) {
  server::RequestParser parser(1024, 4096);
  std::vector<std::string> out;
  std::string pending;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    pending += bytes.substr(at, piece);
    for (;;) {
      const auto before = parser.state();
      const size_t n = parser.feed(pending);
      BZ_CHECK_LE(n, pending.size());
      pending.erase(0, n);
      if (parser.state() == server::RequestParser::State::kBad) {
        BZ_CHECK(parser.error_status() >= 400 && !parser.error_message().empty());
        return out;
      }
      if (parser.state() == server::RequestParser::State::kComplete) {
        const server::HttpRequest request = parser.take();
        BZ_CHECK_LE(request.body.size(), 4096u);
        out.push_back(request.method + " " + request.path + "?" + request.query + "\n" + request.body);
      } else if (n == 0 && parser.state() == before) {
        break;
      }
    }
  }
  return out;
}

}  // namespace

void http(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto kind = static_cast<unsigned>(input[0]);
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  switch (kind % 5) {
    case 0: return generation(server::parse_completion_request(text, kLimits));
    case 1: return generation(server::parse_chat_request(text, kLimits));
    case 2: {
      const auto request = server::parse_tokenize_request(text);
      if (!request.ok()) return check_refusal(request.status());
      BZ_CHECK(is_utf8(request->text));
      return;
    }
    case 3: {
      const auto request = server::parse_detokenize_request(text, kLimits);
      return request.ok() ? check_tokens(request->tokens) : check_refusal(request.status());
    }
    default: BZ_CHECK(requests_of(text, text.size() + 1) == requests_of(text, 1 + kind / 5 % 7));
  }
}

}  // namespace bz::fuzz
