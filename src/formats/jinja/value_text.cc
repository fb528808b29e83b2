// How values become text: Python's str() and repr(), and JSON.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "formats/jinja/value.h"

namespace bz::formats::jinja {
namespace {

void append_float(double number, std::string& out) {
  const std::string text = fmt::format("{}", number);
  out += text;
  // Python writes 1.0 where fmt writes 1.
  if (text.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
}

void append_string_repr(std::string_view text, std::string& out) {
  const bool double_quoted = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    if (c == '\\' || c == quote) {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += quote;
}

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// Text grows while values are walked; a shared sublist could make it grow beyond any bound on the values themselves.
constexpr size_t kMaxTextBytes = size_t{16} << 20;

void check(int depth, const std::string& out) {
  if (depth > kMaxValueDepth) fail("a value is nested too deeply");
  if (out.size() > kMaxTextBytes) fail("a value's text is too long");
}

void new_json_line(int indent, int depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

void append_json_key(const Value& key, std::string& out) {
  if (key.is(Kind::kString)) {
    append_json_string(key.as_string(), out);
  } else {
    out += '"';
    append_json(key, -1, false, out);
    out += '"';
  }
}

std::string key_text(const Value& key) {
  std::string text;
  append_str(key, text);
  return text;
}

// "[a, b]" or "{k: v}", one item a line if indented.
template <class Items, class AppendItem>
void append_json_items(char open, char close, const Items& items, int indent, int depth, std::string& out,
                       AppendItem append_item) {
  out += open;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += indent < 0 ? ", " : ",";
    first = false;
    new_json_line(indent, depth + 1, out);
    append_item(item);
  }
  if (!first) new_json_line(indent, depth, out);
  out += close;
}

}  // namespace

void append_str(const Value& value, std::string& out) {
  if (value.is(Kind::kString)) {
    out += value.as_string();
  } else if (!value.is(Kind::kUndefined)) {
    append_repr(value, out);
  }
}

void append_repr(const Value& value, std::string& out, int depth) {
  check(depth, out);
  switch (value.kind()) {
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInt: out += fmt::format("{}", value.as_int()); break;
    case Kind::kFloat: append_float(value.as_double(), out); break;
    case Kind::kString: append_string_repr(value.as_string(), out); break;
    case Kind::kList: {
      const bool is_tuple = value.as_list().is_tuple;
      out += is_tuple ? '(' : '[';
      bool first = true;
      for (const Value& item : value.as_list().items) {
        if (!first) out += ", ";
        first = false;
        append_repr(item, out, depth + 1);
      }
      if (is_tuple && value.as_list().items.size() == 1) out += ',';
      out += is_tuple ? ')' : ']';
      break;
    }
    case Kind::kDict: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.as_dict().items) {
        if (!first) out += ", ";
        first = false;
        append_repr(key, out, depth + 1);
        out += ": ";
        append_repr(item, out, depth + 1);
      }
      out += '}';
      break;
    }
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kMethod: out += fmt::format("<{}>", kind_name(value)); break;
  }
}

void append_json(const Value& value, int indent, bool sort_keys, std::string& out, int depth) {
  check(depth, out);
  switch (value.kind()) {
    case Kind::kNone: out += "null"; break;
    case Kind::kBool: out += value.as_bool() ? "true" : "false"; break;
    case Kind::kInt: out += fmt::format("{}", value.as_int()); break;
    case Kind::kFloat: {
      const double number = value.as_double();
      if (std::isnan(number)) {
        out += "NaN";
      } else if (std::isinf(number)) {
        out += number > 0 ? "Infinity" : "-Infinity";
      } else {
        append_float(number, out);
      }
      break;
    }
    case Kind::kString: append_json_string(value.as_string(), out); break;
    case Kind::kList:
      append_json_items('[', ']', value.as_list().items, indent, depth, out,
                        [&](const Value& item) { append_json(item, indent, sort_keys, out, depth + 1); });
      break;
    case Kind::kDict: {
      auto items = value.as_dict().items;
      if (sort_keys) {
        std::stable_sort(items.begin(), items.end(),
                         [](const auto& a, const auto& b) { return key_text(a.first) < key_text(b.first); });
      }
      append_json_items('{', '}', items, indent, depth, out, [&](const auto& item) {
        append_json_key(item.first, out);
        out += ": ";
        append_json(item.second, indent, sort_keys, out, depth + 1);
      });
      break;
    }
    default: fail(fmt::format("{} cannot be written as JSON", kind_name(value)));
  }
}

}  // namespace bz::formats::jinja
