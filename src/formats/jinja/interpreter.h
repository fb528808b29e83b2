// Interpreter: runs one Template once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/jinja/ast.h"
#include "formats/jinja/builtins.h"
#include "formats/jinja/value.h"

namespace bz::formats::jinja {

class Interpreter {
 public:
  // `unix_seconds` is the time that strftime_now() shows.
  Interpreter(Heap& heap, size_t max_output_bytes, int64_t unix_seconds);

  void define(std::string_view name, const Value& value) { globals_.set(name, value); }
  // Throws Error. REQUIRES: called once.
  std::string run(const Template& parsed);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Variables of one scope; a name is looked for here, then outwards.
  struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> variables;
    const Value* find(std::string_view name) const;
    void set(std::string_view name, const Value& value);
  };

  // Bounds the recursion of a walk, whatever the template does.
  class Nest {
   public:
    explicit Nest(Interpreter& interpreter);
    ~Nest() { --interpreter_.nesting_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Interpreter& interpreter_;
  };

  Flow run_block(const Block& block, std::string& out);
  Flow run_statement(const Statement& statement, std::string& out);
  Flow run_if(const Statement& statement, std::string& out);
  Flow run_for(const Statement& statement, std::string& out);
  Flow run_scope(const Block& block, std::string& out);
  void run_set(const Statement& statement);
  const List& loop_items(const Statement& statement);
  void bind_targets(const std::vector<std::string>& targets, const Value& value, Scope& scope);
  std::string captured(const Block& block);
  void append(std::string_view text, std::string& out) const;

  Value eval(const Expr& expr);
  Value eval_or_undefined(const ExprPtr& expr) { return expr != nullptr ? eval(*expr) : Value(); }
  Value eval_name(std::string_view name);
  Value eval_list(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* innermost);
  Args eval_args(const Expr& expr);
  Value call(const Value& callee, const Args& args);
  Value call_macro(const Statement& macro, const Args& args);
  Value call_function(Function function, const Args& args);

  Heap& heap_;
  size_t max_output_bytes_;
  int64_t unix_seconds_;
  int nesting_ = 0;
  Scope globals_;
  Scope* scope_ = &globals_;
};

}  // namespace bz::formats::jinja
