// Interpreter's expressions and calls.
#include <ctime>

#include <fmt/format.h>

#include "formats/jinja/interpreter.h"

namespace bz::formats::jinja {

Value Interpreter::eval(const Expr& expr) {
  const Nest nest(*this);
  heap_.step();
  const auto operand = [&](size_t i) { return eval(*expr.operands[i]); };
  switch (expr.kind) {
    case ExprKind::kLiteral: return expr.literal;
    case ExprKind::kName: return eval_name(expr.text);
    case ExprKind::kList:
    case ExprKind::kTuple: return eval_list(expr);
    case ExprKind::kDict: return eval_dict(expr);
    case ExprKind::kNot: return Value::boolean(!is_true(operand(0)));
    case ExprKind::kNegate: return binary_operator("-", Value::integer(0), operand(0), heap_);
    case ExprKind::kPlus: return binary_operator("+", Value::integer(0), operand(0), heap_);
    case ExprKind::kAnd: {
      const Value left = operand(0);
      return is_true(left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      const Value left = operand(0);
      return is_true(left) ? left : operand(1);
    }
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return binary_operator(expr.text, left, operand(1), heap_);
    }
    case ExprKind::kCompare: return eval_compare(expr);
    case ExprKind::kTernary: return is_true(operand(1)) ? operand(0) : eval_or_undefined(expr.operands[2]);
    case ExprKind::kAttribute: return get_attribute(operand(0), expr.text, heap_);
    case ExprKind::kItem: {
      const Value object = operand(0);
      return get_item(object, operand(1), heap_);
    }
    case ExprKind::kSlice: {
      const Value object = operand(0);
      const Value begin = eval_or_undefined(expr.operands[1]);
      const Value end = eval_or_undefined(expr.operands[2]);
      return get_slice(object, begin, end, eval_or_undefined(expr.operands[3]), heap_);
    }
    case ExprKind::kCall: return eval_call(expr);
    case ExprKind::kFilter: return eval_filter(expr, nullptr);
    case ExprKind::kTest: {
      const Value self = operand(0);
      return Value::boolean(apply_test(expr.text, self, eval_args(expr), heap_));
    }
  }
  return Value();
}

Value Interpreter::eval_name(std::string_view name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    heap_.step(scope->variables.size() / 8);
    if (const Value* value = scope->find(name)) return *value;
  }
  return Value::undefined(name);
}

Value Interpreter::eval_list(const Expr& expr) {
  List* list = heap_.new_list(expr.operands.size());
  list->is_tuple = expr.kind == ExprKind::kTuple;
  for (const ExprPtr& item : expr.operands) list->items.push_back(eval(*item));
  return Value::list(list);
}

Value Interpreter::eval_dict(const Expr& expr) {
  Dict* dict = heap_.new_dict(expr.operands.size() / 2);
  for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
    const Value key = eval(*expr.operands[i]);
    check_key(key);
    heap_.step(1 + dict->items.size() / 8);
    dict->set(key, eval(*expr.operands[i + 1]));
  }
  return Value::dict(dict);
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.operands[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const std::string_view op = expr.operators[i];
    const Value right = eval(*expr.operands[i + 1]);
    bool holds = false;
    if (op == "==" || op == "!=") {
      holds = equals(left, right, heap_) == (op == "==");
    } else if (op == "in" || op == "not in") {
      holds = contains(right, left, heap_) == (op == "in");
    } else {
      const int order = compare(left, right, heap_);
      holds = (op == "<" && order < 0) || (op == "<=" && order <= 0) || (op == ">" && order > 0) ||
              (op == ">=" && order >= 0);
    }
    if (!holds) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Args Interpreter::eval_args(const Expr& expr) {
  Args args;
  args.positional.reserve(expr.operands.size() - 1);
  for (size_t i = 1; i < expr.operands.size(); ++i) args.positional.push_back(eval(*expr.operands[i]));
  for (const auto& [name, value] : expr.keywords) args.named.emplace_back(name, eval(*value));
  return args;
}

Value Interpreter::eval_filter(const Expr& expr, const Value* innermost) {
  const Nest nest(*this);
  const Expr* operand = expr.operands[0].get();
  Value self;
  if (operand == nullptr) {
    if (innermost == nullptr) fail("a filter has nothing to apply to");
    self = *innermost;
  } else if (innermost != nullptr && operand->kind == ExprKind::kFilter) {
    self = eval_filter(*operand, innermost);
  } else {
    self = eval(*operand);
  }
  return apply_filter(expr.text, self, eval_args(expr), heap_);
}

Value Interpreter::eval_call(const Expr& expr) {
  const Expr& callee = *expr.operands[0];
  if (callee.kind == ExprKind::kAttribute) {
    const Value object = eval(*callee.operands[0]);
    if (has_method(object, callee.text)) return call_method(object, callee.text, eval_args(expr), heap_);
    const Value method = get_attribute(object, callee.text, heap_);
    if (method.is(Kind::kUndefined)) fail(fmt::format("a {} has no method '{}'", kind_name(object), callee.text));
    return call(method, eval_args(expr));
  }
  const Value function = eval(callee);
  if (function.is(Kind::kUndefined)) fail(fmt::format("'{}' is undefined and cannot be called", function.as_string()));
  return call(function, eval_args(expr));
}

Value Interpreter::call(const Value& callee, const Args& args) {
  switch (callee.kind()) {
    case Kind::kFunction: return call_function(callee.as_function(), args);
    case Kind::kMacro: return call_macro(*callee.as_macro().definition, args);
    case Kind::kMethod: return call_method(callee.as_method().self, callee.as_method().name, args, heap_);
    default: fail(fmt::format("a {} cannot be called", kind_name(callee)));
  }
}

Value Interpreter::call_macro(const Statement& macro, const Args& args) {
  const Nest nest(*this);
  if (args.positional.size() > macro.parameters.size()) {
    fail(fmt::format("macro '{}' takes {} arguments, {} were given", macro.text, macro.parameters.size(),
                     args.positional.size()));
  }
  // A macro sees the template's variables, not its caller's.
  Scope scope{&globals_, {}};
  Scope* caller = scope_;
  struct Return {
    Scope*& current;
    Scope* caller;
    ~Return() { current = caller; }
  } const back{scope_, caller};
  scope_ = &scope;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* given = args.find(i, parameter.name);
    scope.set(parameter.name, given != nullptr ? *given : eval_or_undefined(parameter.fallback));
  }
  std::string text;
  if (run_block(macro.body, text) != Flow::kNext) fail("break or continue outside of a loop");
  heap_.charge(text.size());
  return heap_.keep(std::move(text));
}

namespace {
Value make_range(const Args& args, Heap& heap) {
  const bool one = args.positional.size() == 1;
  const int64_t begin = one ? 0 : args.integer_or(0, "start", 0);
  const int64_t end = args.integer_or(one ? 0 : 1, "stop", 0);
  const int64_t step = args.integer_or(2, "step", 1);
  if (args.positional.empty()) fail("range() needs an end");
  if (step == 0) fail("range() has a step of zero");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    heap.charge(2 * sizeof(Value));
    heap.step();
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return heap.keep_list(std::move(items));
}

std::string format_time(int64_t unix_seconds, std::string_view format) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  if (format.size() > 256 || localtime_r(&seconds, &local) == nullptr) fail("strftime_now has a bad format or time");
  char text[1024];
  return {text, std::strftime(text, sizeof text, std::string(format).c_str(), &local)};
}
}  // namespace

Value Interpreter::call_function(Function function, const Args& args) {
  switch (function) {
    case Function::kRange: return make_range(args, heap_);
    case Function::kDict:
    case Function::kNamespace: {
      Dict values;
      if (!args.positional.empty()) {
        if (!args.positional[0].is(Kind::kDict)) fail("expected a dict");
        values = args.positional[0].as_dict();
      }
      for (const auto& [name, value] : args.named) values.set(Value::string(name), value);
      heap_.charge(values.items.size() * 2 * sizeof(Value));
      if (function == Function::kNamespace) {
        Namespace* made = heap_.new_namespace();
        made->values = std::move(values);
        return Value::name_space(made);
      }
      Dict* made = heap_.new_dict();
      *made = std::move(values);
      return Value::dict(made);
    }
    case Function::kRaiseException: {
      Error error;
      error.message = to_text(args.get(0, "message"), heap_);
      error.raised = true;
      throw error;
    }
    case Function::kStrftimeNow: return heap_.keep(format_time(unix_seconds_, args.string(0, "format")));
  }
  return Value();
}

}  // namespace bz::formats::jinja
