#include "server/json.h"

#include <nlohmann/json.hpp>

#include "formats/utf8.h"

namespace bz::server {
namespace {

using formats::Utf8Kind;
using formats::Utf8Step;

// The first byte at which brackets nest deeper than allowed, or npos. Strings are skipped; other syntax is the
// parser's.
size_t too_deep_at(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
  }
}

}  // namespace

Result<Json> parse_json(std::string_view body) {
  if (body.empty()) return invalid_argument("the request body is empty; a JSON object is expected");
  const size_t deep = too_deep_at(body);
  if (deep != std::string_view::npos) {
    return invalid_argument("the request body nests deeper than {} levels (byte {})", kMaxJsonDepth, deep);
  }
  try {
    return Json::parse(body.begin(), body.end());
  } catch (const Json::parse_error& e) {
    return invalid_argument("the request body is not valid JSON (byte {})", e.byte);
  } catch (const Json::out_of_range&) {
    return invalid_argument("the request body holds a number that is out of range");
  } catch (const Json::exception&) {
    return invalid_argument("the request body is not valid JSON");
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;  // start of the run that is copied as it is
  size_t i = 0;
  const auto flush = [&] { out.append(text.substr(plain, i - plain)); };
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != 0x7f) {
      ++i;
      continue;
    }
    if (c < 0x80) {
      flush();
      append_escaped(out, text[i]);
      plain = ++i;
      continue;
    }
    const Utf8Step step = formats::utf8_step(text.substr(i));
    if (step.kind != Utf8Kind::kWhole) {
      flush();
      out += formats::kReplacementCharacter;
      plain = i + step.length;
    }
    i += step.length;
  }
  flush();
  out += '"';
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string shown(const Json& value) {
  constexpr size_t kLimit = 60;
  // Large values are not worth printing whole only to be cut.
  if (value.is_structured() && value.size() > 8) {
    return fmt::format("{} of {} values", value.is_array() ? "an array" : "an object", value.size());
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kLimit) return text;
  text.resize(kLimit);
  text.resize(formats::utf8_valid_prefix(text));
  return text + "...";
}

}  // namespace bz::server
