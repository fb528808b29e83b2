#include "formats/jinja/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

namespace bz::formats::jinja {
namespace {
constexpr int kMaxNesting = 600;  // of statements, expressions and macro calls: each takes some hundred bytes of stack
}  // namespace

const Value* Interpreter::Scope::find(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}
void Interpreter::Scope::set(std::string_view name, const Value& value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

Interpreter::Nest::Nest(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter_.nesting_ >= kMaxNesting) fail("macros or expressions are nested too deeply");
  ++interpreter_.nesting_;
}

Interpreter::Interpreter(Heap& heap, size_t max_output_bytes, int64_t unix_seconds)
    : heap_(heap), max_output_bytes_(max_output_bytes), unix_seconds_(unix_seconds) {
  define("range", Value::function(Function::kRange));
  define("namespace", Value::function(Function::kNamespace));
  define("dict", Value::function(Function::kDict));
  define("raise_exception", Value::function(Function::kRaiseException));
  define("strftime_now", Value::function(Function::kStrftimeNow));
}

std::string Interpreter::run(const Template& parsed) {
  std::string out;
  if (run_block(parsed.body, out) != Flow::kNext) fail("break or continue outside of a loop");
  return out;
}

void Interpreter::append(std::string_view text, std::string& out) const {
  if (text.size() > max_output_bytes_ - std::min(out.size(), max_output_bytes_)) {
    fail(fmt::format("the output would be longer than {} bytes", max_output_bytes_));
  }
  out += text;
}

Interpreter::Flow Interpreter::run_block(const Block& block, std::string& out) {
  const Nest nest(*this);
  for (const Statement& statement : block) {
    heap_.step();
    try {
      const Flow flow = run_statement(statement, out);
      if (flow != Flow::kNext) return flow;
    } catch (Error& error) {
      if (error.line == 0) error.line = statement.line;
      throw;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement, std::string& out) {
  switch (statement.kind) {
    case StatementKind::kText: append(statement.text, out); return Flow::kNext;
    case StatementKind::kOutput: append(to_text(eval(*statement.expr), heap_), out); return Flow::kNext;
    case StatementKind::kIf: return run_if(statement, out);
    case StatementKind::kFor: return run_for(statement, out);
    case StatementKind::kSet: run_set(statement); return Flow::kNext;
    case StatementKind::kMacro: {
      Macro* macro = heap_.new_macro();
      macro->definition = &statement;
      scope_->set(statement.text, Value::macro(macro));
      return Flow::kNext;
    }
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
    case StatementKind::kScope: return run_scope(statement.body, out);
    case StatementKind::kFilterBlock: {
      const Value body = heap_.keep(captured(statement.body));
      append(to_text(eval_filter(*statement.expr, &body), heap_), out);
      return Flow::kNext;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, std::string& out) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || is_true(eval(*branch.condition))) return run_block(branch.body, out);
  }
  return Flow::kNext;
}

namespace {
// Sets a variable for the life of a C++ scope.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(variable) { variable = value; }
  ~Restore() { variable_ = old_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};
}  // namespace

Interpreter::Flow Interpreter::run_scope(const Block& block, std::string& out) {
  Scope scope{scope_, {}};
  const Restore restore(scope_, &scope);
  return run_block(block, out);
}

const List& Interpreter::loop_items(const Statement& statement) {
  const Value iterable = eval(*statement.expr);
  if (statement.condition == nullptr) {
    if (iterable.is(Kind::kList)) return iterable.as_list();
    return heap_.keep_list(iterate(iterable, heap_)).as_list();
  }
  std::vector<Value> kept;
  for (const Value& item : iterate(iterable, heap_)) {
    Scope scope{scope_, {}};
    const Restore restore(scope_, &scope);
    bind_targets(statement.targets, item, scope);
    if (is_true(eval(*statement.condition))) kept.push_back(item);
  }
  return heap_.keep_list(std::move(kept)).as_list();
}

Interpreter::Flow Interpreter::run_for(const Statement& statement, std::string& out) {
  const List& items = loop_items(statement);
  if (items.items.empty()) return run_scope(statement.other, out);
  Loop* loop = heap_.new_loop();
  loop->items = &items;
  for (size_t i = 0; i < items.items.size(); ++i) {
    heap_.step();
    loop->index = i;
    // A new scope each time: what an iteration sets, the next does not see.
    Scope scope{scope_, {}};
    const Restore restore(scope_, &scope);
    bind_targets(statement.targets, items.items[i], scope);
    scope.set("loop", Value::loop(loop));
    if (run_block(statement.body, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Interpreter::bind_targets(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
  if (targets.size() == 1) {
    scope.set(targets[0], value);
    return;
  }
  const std::vector<Value> parts = iterate(value, heap_);
  if (parts.size() != targets.size()) {
    fail(fmt::format("{} values cannot be unpacked into {} variables", parts.size(), targets.size()));
  }
  for (size_t i = 0; i < targets.size(); ++i) scope.set(targets[i], parts[i]);
}

std::string Interpreter::captured(const Block& block) {
  std::string text;
  Scope scope{scope_, {}};
  const Restore restore(scope_, &scope);
  if (run_block(block, text) != Flow::kNext) fail("break or continue inside a captured block");
  heap_.charge(text.size());
  return text;
}

void Interpreter::run_set(const Statement& statement) {
  Value value;
  if (!statement.body.empty()) {
    value = heap_.keep(captured(statement.body));
    if (statement.expr != nullptr) value = eval_filter(*statement.expr, &value);
  } else {
    value = eval(*statement.expr);
  }
  if (statement.attribute.empty()) {
    bind_targets(statement.targets, value, *scope_);
    heap_.step(scope_->variables.size() / 8);
    return;
  }
  const Value target = eval_name(statement.text);
  if (!target.is(Kind::kNamespace)) {
    fail(fmt::format("'{}' is a {}: only a namespace's attributes can be set", statement.text, kind_name(target)));
  }
  Dict& values = target.as_namespace().values;
  heap_.step(1 + values.items.size() / 8);
  values.set(Value::string(statement.attribute), value);
}

}  // namespace bz::formats::jinja
