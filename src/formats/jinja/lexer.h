// Lexer: a Jinja template's source as tokens, with white space control already applied.
//
// As transformers configures Jinja: trim_blocks (the newline after a block tag goes), lstrip_blocks (so do the blanks
// before one that begins its line), one newline at the very end goes, line ends become \n.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bz::formats::jinja {

enum class TokenKind {
  kText,         // text outside tags
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kName,
  kString,   // text: unescaped
  kInteger,  // text: digits without underscores, 0x.. and the like included
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// Throws Error with a line. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace bz::formats::jinja
