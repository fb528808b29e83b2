// The parsed form of a Jinja template: expressions and statements.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/jinja/value.h"

namespace bz::formats::jinja {

enum class ExprKind {
  kLiteral,    // literal, or text for strings
  kName,       // text
  kList,       // operands
  kTuple,      // operands
  kDict,       // operands: key, value, key, value, ...
  kNot,        // operands[0]
  kNegate,     // operands[0]
  kPlus,       // operands[0]
  kAnd,        // operands[0], [1]
  kOr,         // operands[0], [1]
  kBinary,     // text: + - * / // % ** ~
  kCompare,    // operands; operators[i] between operands i and i + 1: == != < <= > >= in, not in
  kTernary,    // operands: value, condition, other (may be absent)
  kAttribute,  // operands[0] . text
  kItem,       // operands[0] [ operands[1] ]
  kSlice,      // operands[0] [ operands[1] : [2] : [3] ], absent ones null
  kCall,       // operands[0] ( operands[1...], keywords )
  kFilter,     // operands[0] | text ( operands[1...], keywords ); operands[0] is null in a filter block
  kTest,       // operands[0] is text ( operands[1...] )
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 0;
  int depth = 1;  // of the tree below, itself included: bounded, so that walks may recurse
  std::string text;
  Value literal;
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

enum class StatementKind {
  kText,    // text
  kOutput,  // expr
  kIf,      // branches
  kFor,     // targets, expr (iterable), condition, body, other
  kSet,     // targets or (text . attribute), expr; or body for a set block
  kMacro,   // text (name), parameters, body
  kBreak,
  kContinue,
  kScope,        // body: {% generation %} and {% with %}
  kFilterBlock,  // expr (a chain of filters, innermost operand null), body
};

struct Statement;
using Block = std::vector<Statement>;

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};
struct Parameter {
  std::string name;
  ExprPtr fallback;  // null: none
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  std::string attribute;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::string> targets;
  std::vector<Parameter> parameters;
  std::vector<Branch> branches;
  Block body;
  Block other;  // of a for: when there was nothing to iterate over
};

struct Template {
  Block body;
};

}  // namespace bz::formats::jinja
