// ExpressionParser: the expression half of the parser, and the cursor over the tokens that both halves share.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "formats/jinja/ast.h"
#include "formats/jinja/lexer.h"

namespace bz::formats::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // An expression. Without conditional, `a if b else c` stops before the if (for loops have a filter there).
  ExprPtr parse_expression(bool with_conditional = true);
  // One expression, or a tuple of several with commas between.
  ExprPtr parse_tuple(bool with_conditional = true);
  // `| name(args) | ...` applied to `operand`, and tests.
  ExprPtr parse_filters(ExprPtr operand);
  ExprPtr parse_filter(ExprPtr operand);

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take();
  bool at_operator(std::string_view op) const { return peek().kind == TokenKind::kOperator && peek().text == op; }
  bool at_name(std::string_view name) const { return peek().kind == TokenKind::kName && peek().text == name; }
  bool take_operator(std::string_view op);
  bool take_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name(std::string_view what);
  [[noreturn]] void error(std::string message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Bounds the recursion of the parser itself.
  class Nest {
   public:
    explicit Nest(ExpressionParser& parser);
    ~Nest() { --parser_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  template <class... Operands>
  ExprPtr make(ExprKind kind, std::string text, Operands... operands);
  ExprPtr literal(Value value);
  void adopt(Expr& parent, ExprPtr child);

  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_postfix(ExprPtr operand);
  ExprPtr parse_subscript(ExprPtr operand);
  ExprPtr parse_call(ExprPtr callee);
  void parse_arguments(Expr& call);
  ExprPtr parse_test(ExprPtr operand);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_number();
  ExprPtr parse_parentheses();
  ExprPtr parse_list();
  ExprPtr parse_dict();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace bz::formats::jinja
