#include "formats/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "formats/jinja/value.h"
#include "formats/utf8.h"

namespace bz::formats::jinja {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Longest first, so that the first that fits is right.
constexpr std::array<std::string_view, 25> kOperators = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                                         "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                         "]",  "{",  "}",  ".",  ":",  ",",  "|"};

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      read_text();
      if (at_ < source_.size()) read_tag();
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) const { throw Error{std::move(message), line_}; }
  bool starts_with(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }
  void skip_spaces() {
    while (at_ < source_.size() && is_space(source_[at_])) advance(1);
  }

  // Text up to the next tag, with what the tag strips taken off.
  void read_text() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) tag = std::string::npos;
      if (tag == std::string::npos) break;
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const size_t end = tag == std::string::npos ? source_.size() : tag;
    std::string text = source_.substr(at_, end - at_);
    const bool at_line_start = at_ == 0 || source_[at_ - 1] == '\n';
    if (tag != std::string::npos) strip_before_tag(tag, at_line_start, text);
    if (!text.empty()) add(TokenKind::kText, std::move(text));
    advance(end - at_);
  }

  void strip_before_tag(size_t tag, bool at_line_start, std::string& text) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      while (!text.empty() && is_space(text.back())) text.pop_back();
      return;
    }
    if (sign == '+' || source_[tag + 1] == '{') return;
    const size_t newline = text.rfind('\n');
    if (newline == std::string::npos && !at_line_start) return;
    const size_t line_begin = newline == std::string::npos ? 0 : newline + 1;
    if (std::all_of(text.begin() + static_cast<ptrdiff_t>(line_begin), text.end(), is_space)) text.resize(line_begin);
  }

  void read_tag() {
    const char kind = source_[at_ + 1];
    const size_t sign = at_ + 2 < source_.size() && (source_[at_ + 2] == '-' || source_[at_ + 2] == '+') ? 1 : 0;
    if (kind == '#') return read_comment();
    add(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    const size_t first = tokens_.size();
    advance(2 + sign);
    read_expression(kind == '{' ? "}}" : "%}", kind == '{' ? TokenKind::kOutputEnd : TokenKind::kBlockEnd);
    const bool is_raw = kind == '%' && tokens_.size() == first + 2 && tokens_[first].kind == TokenKind::kName &&
                        tokens_[first].text == "raw";
    if (is_raw) {
      tokens_.resize(first - 1);
      undo_newline_trim();
      read_raw();
    }
  }

  void read_comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == std::string::npos) error("a comment is not closed with #}");
    const char sign = close > at_ + 2 ? source_[close - 1] : '\0';
    advance(close + 2 - at_);
    strip_after_tag(sign, /*is_block=*/true);
  }

  void strip_after_tag(char sign, bool is_block) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && is_block && at_ < source_.size() && source_[at_] == '\n') {
      advance(1);
    }
  }

  // The text after {% raw %} keeps its first newline, unlike that after other block tags.
  void undo_newline_trim() {
    if (source_[at_ - 1] != '\n' || source_[at_ - 2] != '}') return;
    --at_;
    --line_;
  }

  // Everything up to {% endraw %} is text.
  void read_raw() {
    for (size_t open = at_; (open = source_.find("{%", open)) != std::string::npos; open += 2) {
      size_t cursor = open + 2;
      if (cursor < source_.size() && (source_[cursor] == '-' || source_[cursor] == '+')) ++cursor;
      while (cursor < source_.size() && is_space(source_[cursor])) ++cursor;
      if (source_.compare(cursor, 6, "endraw") != 0) continue;
      cursor += 6;
      while (cursor < source_.size() && is_space(source_[cursor])) ++cursor;
      char sign = '\0';
      if (cursor < source_.size() && (source_[cursor] == '-' || source_[cursor] == '+')) sign = source_[cursor++];
      if (source_.compare(cursor, 2, "%}") != 0) continue;
      std::string text = source_.substr(at_, open - at_);
      strip_before_tag(open, at_ > 0 && source_[at_ - 1] == '\n', text);
      if (!text.empty()) add(TokenKind::kText, std::move(text));
      advance(cursor + 2 - at_);
      strip_after_tag(sign, /*is_block=*/true);
      return;
    }
    error("{% raw %} is not closed with {% endraw %}");
  }

  // Tokens up to the closing mark, which counts only outside brackets: {{ {"a": {}} }}.
  void read_expression(std::string_view close, TokenKind close_kind) {
    std::string brackets;
    for (;;) {
      skip_spaces();
      if (at_ >= source_.size()) error(fmt::format("a tag is not closed with {}", close));
      if (brackets.empty() && try_close(close, close_kind)) return;
      const char c = source_[at_];
      if (is_name_start(c)) {
        read_name();
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        read_string();
      } else {
        read_operator(brackets);
      }
    }
  }

  bool try_close(std::string_view close, TokenKind kind) {
    const char c = source_[at_];
    const bool has_sign = (c == '-' || c == '+') && std::string_view(source_).substr(at_ + 1).starts_with(close);
    if (!has_sign && !starts_with(close)) return false;
    add(kind, "");
    advance(close.size() + (has_sign ? 1 : 0));
    strip_after_tag(has_sign ? c : '\0', kind == TokenKind::kBlockEnd);
    return true;
  }

  void read_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
  }

  void read_number() {
    size_t end = at_;
    const auto skip_digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    bool is_float = false;
    if (source_[at_] == '0' && at_ + 1 < source_.size() &&
        std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos) {
      end += 2;
      while (end < source_.size() && (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_'))
        ++end;
    } else {
      skip_digits();
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        is_float = true;
        ++end;
        skip_digits();
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          is_float = true;
          end = exponent;
          skip_digits();
        }
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    at_ = end;
  }

  void read_string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string is not closed");
    add(TokenKind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // Python's escapes. A backslash before anything else stays.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kNames = "nrtabfv0\\'\"";
      static constexpr std::string_view kValues("\n\r\t\a\b\f\v\0\\'\"", 11);
      if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kValues[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
        utf8_append(out, parse_hex(text.substr(i + 1, digits), digits));
        i += digits;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  uint32_t parse_hex(std::string_view digits, size_t count) const {
    if (digits.size() < count) error("a string has a cut-off escape");
    uint32_t value = 0;
    for (const char c : digits) {
      if (!std::isxdigit(static_cast<unsigned char>(c))) error("a string has a bad hexadecimal escape");
      value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10ffff) error("a string has an escape past U+10FFFF");
    return value >= 0xd800 && value < 0xe000 ? 0xfffd : value;  // half a surrogate pair is no character
  }

  void read_operator(std::string& brackets) {
    for (const std::string_view op : kOperators) {
      if (!starts_with(op)) continue;
      track_brackets(op[0], brackets);
      add(TokenKind::kOperator, std::string(op));
      at_ += op.size();
      return;
    }
    error(fmt::format("'{}' is not expected here", source_[at_] & 0x80 ? '?' : source_[at_]));
  }

  void track_brackets(char c, std::string& brackets) const {
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty() || brackets.back() != c) error(fmt::format("'{}' closes nothing", c));
    brackets.pop_back();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace bz::formats::jinja
