#include "server/logprobs_json.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "server/json.h"

namespace bz::server {
namespace {

using engine::TokenLogprobs;
using formats::Tokenizer;

// JSON knows no infinity; OpenAI says -9999 for what cannot happen.
constexpr float kLowest = -9999.0f;

template <class... Args>
void append(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

void append_number(std::string& out, float logprob) { append(out, "{}", std::max(logprob, kLowest)); }

// Characters that begin in these bytes: of the tokens that make one together, the first counts it.
int64_t num_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// {token: logprob}: the alternatives and the token itself.
void append_top(std::string& out, const Tokenizer& tokenizer, const TokenLogprobs& t) {
  std::vector<std::string> seen;
  out += '{';
  const auto add = [&](int32_t token, float logprob) {
    std::string key = json_string(tokenizer.token_bytes(token));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return;
    if (!seen.empty()) out += ',';
    out += key;
    out += ':';
    append_number(out, logprob);
    seen.push_back(std::move(key));
  };
  for (size_t i = 0; i < static_cast<size_t>(t.num_top); ++i) add(t.top_tokens[i], t.top_logprobs[i]);
  add(t.token, t.logprob);
  out += '}';
}

// "token", "logprob", "bytes" of a chat's entry.
void append_entry(std::string& out, const Tokenizer& tokenizer, int32_t token, float logprob) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  out += "\"token\":";
  append_json_string(out, bytes);
  out += ",\"logprob\":";
  append_number(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) append(out, "{}{}", i ? "," : "", static_cast<unsigned char>(bytes[i]));
  out += ']';
}

// Calls write(token) for each, with commas between.
template <class Write>
void append_list(std::string& out, std::span<const TokenLogprobs> tokens, Write&& write) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i) out += ',';
    write(tokens[i]);
  }
  out += ']';
}

}  // namespace

void append_completion_logprobs(std::string& out, const Tokenizer& tokenizer, std::span<const TokenLogprobs> tokens,
                                int64_t* offset) {
  std::string offsets;
  out += "{\"tokens\":";
  append_list(out, tokens, [&](const TokenLogprobs& t) {
    const std::string_view text = tokenizer.token_bytes(t.token);
    append_json_string(out, text);
    append(offsets, "{}{}", offsets.empty() ? "" : ",", *offset);
    *offset += num_characters(text);
  });
  out += ",\"token_logprobs\":";
  append_list(out, tokens, [&](const TokenLogprobs& t) {
    if (t.rank == 0) {
      out += "null";
    } else {
      append_number(out, t.logprob);
    }
  });
  out += ",\"top_logprobs\":";
  append_list(out, tokens, [&](const TokenLogprobs& t) {
    if (t.rank == 0) {
      out += "null";
    } else {
      append_top(out, tokenizer, t);
    }
  });
  append(out, ",\"text_offset\":[{}]}}", offsets);
}

void append_chat_logprobs(std::string& out, const Tokenizer& tokenizer, std::span<const TokenLogprobs> tokens) {
  out += "{\"content\":";
  append_list(out, tokens, [&](const TokenLogprobs& t) {
    out += '{';
    append_entry(out, tokenizer, t.token, t.logprob);
    out += ",\"top_logprobs\":[";
    for (size_t i = 0; i < static_cast<size_t>(t.num_top); ++i) {
      out += i ? ",{" : "{";
      append_entry(out, tokenizer, t.top_tokens[i], t.top_logprobs[i]);
      out += '}';
    }
    out += "]}";
  });
  out += '}';
}

void append_prompt_logprobs(std::string& out, const Tokenizer& tokenizer, std::span<const TokenLogprobs> tokens) {
  const auto add = [&](int32_t token, float logprob, int32_t rank) {
    append(out, "\"{}\":{{\"logprob\":", token);
    append_number(out, logprob);
    append(out, ",\"rank\":{},\"decoded_token\":", rank);
    append_json_string(out, tokenizer.token_bytes(token));
    out += '}';
  };
  append_list(out, tokens, [&](const TokenLogprobs& t) {
    if (t.rank == 0) {
      out += "null";
      return;
    }
    out += '{';
    add(t.token, t.logprob, t.rank);
    for (size_t i = 0; i < static_cast<size_t>(t.num_top); ++i) {
      if (t.top_tokens[i] == t.token) continue;
      out += ',';
      add(t.top_tokens[i], t.top_logprobs[i], static_cast<int32_t>(i) + 1);
    }
    out += '}';
  });
}

}  // namespace bz::server
