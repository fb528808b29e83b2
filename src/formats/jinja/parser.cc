#include "formats/jinja/parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "formats/jinja/expression_parser.h"

namespace bz::formats::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  std::unique_ptr<Template> run() {
    auto parsed = std::make_unique<Template>();
    parsed->body = parse_block({});
    if (peek().kind != TokenKind::kEnd) error(fmt::format("'{}' closes nothing", peek(1).text));
    return parsed;
  }

 private:
  // Statements up to a block tag that begins with one of `ends`, which is left to the caller.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Nest nest(*this);
    Block block;
    for (;;) {
      switch (peek().kind) {
        case TokenKind::kText: block.push_back(make(StatementKind::kText, take().text)); break;
        case TokenKind::kOutputBegin: block.push_back(parse_output()); break;
        case TokenKind::kBlockBegin: {
          const Token& name = peek(1);
          if (name.kind != TokenKind::kName) unexpected("a statement");
          if (std::find(ends.begin(), ends.end(), name.text) != ends.end()) return block;
          if (ends.size() == 0 && name.text.starts_with("end")) return block;
          block.push_back(parse_statement());
          break;
        }
        default:
          if (ends.size() != 0) error(fmt::format("a block is not closed with {{% {} %}}", *(ends.end() - 1)));
          return block;
      }
    }
  }

  Statement make(StatementKind kind, std::string text = {}) const {
    Statement statement;
    statement.kind = kind;
    statement.line = peek().line;
    statement.text = std::move(text);
    return statement;
  }

  void expect_block_end() {
    if (peek().kind != TokenKind::kBlockEnd) unexpected("%}");
    take();
  }
  // {% name %}, the begin mark being next.
  void expect_tag(std::string_view name) {
    take();
    if (!take_name(name)) unexpected(name);
    expect_block_end();
  }

  Statement parse_output() {
    Statement statement = make(StatementKind::kOutput);
    take();
    statement.expr = parse_tuple();
    if (peek().kind != TokenKind::kOutputEnd) unexpected("}}");
    take();
    return statement;
  }

  Statement parse_statement() {
    take();  // {%
    const std::string name = take().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "filter") return parse_filter_block();
    if (name == "generation") return parse_scope("endgeneration");
    if (name == "with") return parse_with();
    if (name == "break" || name == "continue") {
      Statement statement = make(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
      expect_block_end();
      return statement;
    }
    error(fmt::format("statement '{}' is not supported", name.substr(0, 40)));
  }

  Statement parse_if() {
    Statement statement = make(StatementKind::kIf);
    for (;;) {
      Branch branch;
      branch.condition = parse_tuple();
      expect_block_end();
      branch.body = parse_block({"elif", "else", "endif"});
      statement.branches.push_back(std::move(branch));
      take();  // {%
      if (take_name("elif")) continue;
      if (take_name("else")) {
        expect_block_end();
        statement.branches.push_back({nullptr, parse_block({"endif"})});
        take();
      }
      take();  // endif
      expect_block_end();
      return statement;
    }
  }

  std::vector<std::string> parse_targets() {
    std::vector<std::string> targets;
    const bool in_parentheses = take_operator("(");
    do {
      if (!targets.empty() && (at_operator("=") || at_name("in"))) break;  // a trailing comma
      targets.push_back(expect_name("a variable's name"));
    } while (take_operator(","));
    if (in_parentheses) expect_operator(")");
    return targets;
  }

  Statement parse_for() {
    Statement statement = make(StatementKind::kFor);
    statement.targets = parse_targets();
    if (!take_name("in")) unexpected("'in'");
    statement.expr = parse_tuple(/*with_conditional=*/false);
    if (take_name("if")) statement.condition = parse_expression();
    if (at_name("recursive")) error("recursive loops are not supported");
    expect_block_end();
    statement.body = parse_block({"else", "endfor"});
    take();  // {%
    if (take_name("else")) {
      expect_block_end();
      statement.other = parse_block({"endfor"});
      take();
    }
    take();  // endfor
    expect_block_end();
    return statement;
  }

  Statement parse_set() {
    Statement statement = make(StatementKind::kSet);
    if (peek(1).kind == TokenKind::kOperator && peek(1).text == ".") {
      statement.text = expect_name("a variable's name");
      take();
      statement.attribute = expect_name("an attribute's name");
    } else {
      statement.targets = parse_targets();
    }
    if (take_operator("=")) {
      statement.expr = parse_tuple();
      expect_block_end();
      return statement;
    }
    if (at_operator("|")) statement.expr = parse_filters(nullptr);
    expect_block_end();
    statement.condition = nullptr;
    statement.body = parse_block({"endset"});
    // An empty body is still a body: mark it.
    if (statement.body.empty()) statement.body.push_back(make(StatementKind::kText));
    expect_tag("endset");
    return statement;
  }

  Statement parse_macro() {
    Statement statement = make(StatementKind::kMacro, expect_name("the macro's name"));
    expect_operator("(");
    while (!take_operator(")")) {
      Parameter parameter;
      parameter.name = expect_name("a parameter's name");
      if (take_operator("=")) parameter.fallback = parse_expression();
      statement.parameters.push_back(std::move(parameter));
      if (!at_operator(")")) expect_operator(",");
    }
    expect_block_end();
    statement.body = parse_block({"endmacro"});
    take();                                       // {%
    take();                                       // endmacro
    if (peek().kind == TokenKind::kName) take();  // its name may be repeated
    expect_block_end();
    return statement;
  }

  Statement parse_filter_block() {
    Statement statement = make(StatementKind::kFilterBlock);
    // The tag names the filter without a bar.
    ExprPtr filter = std::make_unique<Expr>();
    filter->kind = ExprKind::kFilter;
    filter->line = peek().line;
    filter->text = expect_name("a filter's name");
    filter->operands.push_back(nullptr);
    if (at_operator("(")) error("arguments in a filter block are not supported");
    statement.expr = parse_filters(std::move(filter));
    expect_block_end();
    statement.body = parse_block({"endfilter"});
    expect_tag("endfilter");
    return statement;
  }

  Statement parse_scope(std::string_view end) {
    Statement statement = make(StatementKind::kScope);
    expect_block_end();
    statement.body = parse_block({end});
    expect_tag(end);
    return statement;
  }

  // {% with a = 1, b = 2 %}: a scope that begins with sets.
  Statement parse_with() {
    Statement statement = make(StatementKind::kScope);
    while (peek().kind != TokenKind::kBlockEnd) {
      Statement set = make(StatementKind::kSet);
      set.targets.push_back(expect_name("a variable's name"));
      expect_operator("=");
      set.expr = parse_expression();
      statement.body.push_back(std::move(set));
      if (peek().kind != TokenKind::kBlockEnd) expect_operator(",");
    }
    expect_block_end();
    Block body = parse_block({"endwith"});
    std::move(body.begin(), body.end(), std::back_inserter(statement.body));
    expect_tag("endwith");
    return statement;
  }
};

}  // namespace

std::unique_ptr<Template> parse_template(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace bz::formats::jinja
