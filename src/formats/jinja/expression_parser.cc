#include "formats/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace bz::formats::jinja {
namespace {
constexpr int kMaxNesting = 100;    // of brackets, blocks and prefix operators
constexpr int kMaxExprDepth = 250;  // of the tree: long chains of operators are deep too

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText: return "text";
    case TokenKind::kOutputBegin: return "{{";
    case TokenKind::kOutputEnd: return "}}";
    case TokenKind::kBlockBegin: return "{%";
    case TokenKind::kBlockEnd: return "%}";
    case TokenKind::kString: return "a string";
    case TokenKind::kEnd: return "the end";
    default: return "'" + token.text.substr(0, 40) + "'";
  }
}
}  // namespace

ExpressionParser::Nest::Nest(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;  // the destructor will not run
    parser_.error("nested too deeply");
  }
}

void ExpressionParser::error(std::string message) const { throw Error{std::move(message), peek().line}; }
void ExpressionParser::unexpected(std::string_view wanted) const {
  error(fmt::format("expected {}, found {}", wanted, describe(peek())));
}

Token ExpressionParser::take() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool ExpressionParser::take_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}
bool ExpressionParser::take_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}
void ExpressionParser::expect_operator(std::string_view op) {
  if (!take_operator(op)) unexpected(fmt::format("'{}'", op));
}
std::string ExpressionParser::expect_name(std::string_view what) {
  if (peek().kind != TokenKind::kName) unexpected(what);
  return take().text;
}

void ExpressionParser::adopt(Expr& parent, ExprPtr child) {
  if (child != nullptr) parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxExprDepth) error("an expression is too long or nested too deeply");
  parent.operands.push_back(std::move(child));
}

template <class... Operands>
ExprPtr ExpressionParser::make(ExprKind kind, std::string text, Operands... operands) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  expr->text = std::move(text);
  (adopt(*expr, std::move(operands)), ...);
  return expr;
}
ExprPtr ExpressionParser::literal(Value value) {
  ExprPtr expr = make(ExprKind::kLiteral, "");
  expr->literal = value;
  return expr;
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Nest nest(*this);
  ExprPtr value = parse_or();
  while (with_conditional && take_name("if")) {
    ExprPtr condition = parse_or();
    ExprPtr other = take_name("else") ? parse_expression() : nullptr;
    value = make(ExprKind::kTernary, "", std::move(value), std::move(condition), std::move(other));
  }
  return value;
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional) {
  ExprPtr first = parse_expression(with_conditional);
  if (!at_operator(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, "", std::move(first));
  while (take_operator(",")) {
    const bool ends = peek().kind == TokenKind::kBlockEnd || peek().kind == TokenKind::kOutputEnd || at_operator("=");
    if (ends) break;
    adopt(*tuple, parse_expression(with_conditional));
  }
  return tuple;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (take_name("or")) left = make(ExprKind::kOr, "", std::move(left), parse_and());
  return left;
}
ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (take_name("and")) left = make(ExprKind::kAnd, "", std::move(left), parse_not());
  return left;
}
ExprPtr ExpressionParser::parse_not() {
  if (!take_name("not")) return parse_compare();
  const Nest nest(*this);
  return make(ExprKind::kNot, "", parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr chain;
  for (;;) {
    std::string op;
    const bool is_symbol = peek().kind == TokenKind::kOperator &&
                           std::find(kComparisons.begin(), kComparisons.end(), peek().text) != kComparisons.end();
    if (is_symbol) {
      op = take().text;
    } else if (take_name("in")) {
      op = "in";
    } else if (at_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (chain == nullptr) chain = make(ExprKind::kCompare, "", std::move(first));
    chain->operators.push_back(op);
    adopt(*chain, parse_sum());
  }
  return chain != nullptr ? std::move(chain) : std::move(first);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    std::string op = take().text;
    left = make(ExprKind::kBinary, std::move(op), std::move(left), parse_concat());
  }
  return left;
}
ExprPtr ExpressionParser::parse_concat() {
  ExprPtr left = parse_product();
  while (take_operator("~")) left = make(ExprKind::kBinary, "~", std::move(left), parse_product());
  return left;
}
ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    std::string op = take().text;
    left = make(ExprKind::kBinary, std::move(op), std::move(left), parse_power());
  }
  return left;
}
ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (take_operator("**")) left = make(ExprKind::kBinary, "**", std::move(left), parse_unary());
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nest nest(*this);
  ExprPtr value;
  if (take_operator("-")) {
    value = make(ExprKind::kNegate, "", parse_unary(false));
  } else if (take_operator("+")) {
    value = make(ExprKind::kPlus, "", parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr operand) {
  for (;;) {
    if (take_operator(".")) {
      if (peek().kind == TokenKind::kInteger) {
        operand = make(ExprKind::kItem, "", std::move(operand), parse_number());
      } else {
        operand = make(ExprKind::kAttribute, expect_name("an attribute's name"), std::move(operand));
      }
    } else if (at_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (at_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr operand) {
  expect_operator("[");
  ExprPtr parts[3];
  size_t colons = 0;
  while (!at_operator("]")) {
    if (take_operator(":")) {
      if (++colons > 2) unexpected("']'");
    } else {
      if (parts[colons] != nullptr) unexpected("']'");
      parts[colons] = parse_expression();
    }
  }
  expect_operator("]");
  if (colons > 0) {
    return make(ExprKind::kSlice, "", std::move(operand), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  }
  if (parts[0] == nullptr) error("[] has no index");
  return make(ExprKind::kItem, "", std::move(operand), std::move(parts[0]));
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprKind::kCall, "", std::move(callee));
  parse_arguments(*call);
  return call;
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_operator("(");
  while (!take_operator(")")) {
    const bool is_keyword =
        peek().kind == TokenKind::kName && peek(1).kind == TokenKind::kOperator && peek(1).text == "=";
    if (is_keyword) {
      std::string name = take().text;
      take();
      ExprPtr value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (at_operator("*") || at_operator("**")) error("argument lists with * are not supported");
      adopt(call, parse_expression());
    }
    if (!at_operator(")")) expect_operator(",");
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr operand) {
  for (;;) {
    if (at_operator("|")) {
      operand = parse_filter(std::move(operand));
    } else if (at_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (at_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::parse_filter(ExprPtr operand) {
  expect_operator("|");
  ExprPtr filter = make(ExprKind::kFilter, expect_name("a filter's name"), std::move(operand));
  if (at_operator("(")) parse_arguments(*filter);
  return filter;
}

ExprPtr ExpressionParser::parse_test(ExprPtr operand) {
  take();  // is
  const bool negated = take_name("not");
  ExprPtr test = make(ExprKind::kTest, expect_name("a test's name"), std::move(operand));
  const TokenKind next = peek().kind;
  const bool is_word = next == TokenKind::kName && !at_name("else") && !at_name("or") && !at_name("and") &&
                       !at_name("if") && !at_name("is") && !at_name("not") && !at_name("in");
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (is_word || next == TokenKind::kString || next == TokenKind::kInteger || next == TokenKind::kFloat ||
             at_operator("[") || at_operator("{")) {
    adopt(*test, parse_postfix(parse_primary()));
  }
  return negated ? make(ExprKind::kNot, "", std::move(test)) : std::move(test);
}

ExprPtr ExpressionParser::parse_primary() {
  switch (peek().kind) {
    case TokenKind::kName: return parse_name_or_constant();
    case TokenKind::kInteger:
    case TokenKind::kFloat: return parse_number();
    case TokenKind::kString: {
      std::string text = take().text;
      while (peek().kind == TokenKind::kString) text += take().text;  // 'a' 'b' is 'ab'
      ExprPtr expr = make(ExprKind::kLiteral, std::move(text));
      expr->literal = Value::string(expr->text);
      return expr;
    }
    default: break;
  }
  if (at_operator("(")) return parse_parentheses();
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  unexpected("an expression");
}

ExprPtr ExpressionParser::parse_name_or_constant() {
  const std::string name = take().text;
  if (name == "true" || name == "True") return literal(Value::boolean(true));
  if (name == "false" || name == "False") return literal(Value::boolean(false));
  if (name == "none" || name == "None") return literal(Value::none());
  return make(ExprKind::kName, name);
}

ExprPtr ExpressionParser::parse_number() {
  const Token token = take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double number = 0;
    const auto parsed = std::from_chars(begin, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) error(fmt::format("'{}' is no number", token.text));
    return literal(Value::number(number));
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char letter = static_cast<char>(token.text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) begin += 2;
  }
  int64_t number = 0;
  const auto parsed = std::from_chars(begin, end, number, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) error(fmt::format("'{}' is no number in range", token.text));
  return literal(Value::integer(number));
}

ExprPtr ExpressionParser::parse_parentheses() {
  expect_operator("(");
  if (take_operator(")")) return make(ExprKind::kTuple, "");
  ExprPtr first = parse_expression();
  if (take_operator(")")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, "", std::move(first));
  while (!take_operator(")")) {
    expect_operator(",");
    if (!at_operator(")")) adopt(*tuple, parse_expression());
  }
  return tuple;
}

ExprPtr ExpressionParser::parse_list() {
  expect_operator("[");
  ExprPtr list = make(ExprKind::kList, "");
  while (!take_operator("]")) {
    adopt(*list, parse_expression());
    if (!at_operator("]")) expect_operator(",");
  }
  return list;
}

ExprPtr ExpressionParser::parse_dict() {
  expect_operator("{");
  ExprPtr dict = make(ExprKind::kDict, "");
  while (!take_operator("}")) {
    adopt(*dict, parse_expression());
    expect_operator(":");
    adopt(*dict, parse_expression());
    if (!at_operator("}")) expect_operator(",");
  }
  return dict;
}

}  // namespace bz::formats::jinja
