// Tests (`x is defined`) and the arguments of everything that can be called.
#include <fmt/format.h>

#include "formats/jinja/builtins.h"
#include "formats/jinja/text.h"

namespace bz::formats::jinja {

const Value* Args::find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}
Value Args::get(size_t index, std::string_view name) const {
  const Value* value = find(index, name);
  if (value == nullptr) fail(fmt::format("argument '{}' is missing", name));
  return *value;
}
Value Args::get_or(size_t index, std::string_view name, const Value& fallback) const {
  const Value* value = find(index, name);
  return value != nullptr ? *value : fallback;
}
std::string_view Args::string(size_t index, std::string_view name) const {
  const Value value = get(index, name);
  if (!value.is(Kind::kString)) fail(fmt::format("argument '{}' is a {}, expected a string", name, kind_name(value)));
  return value.as_string();
}
int64_t Args::integer_or(size_t index, std::string_view name, int64_t fallback) const {
  const Value* value = find(index, name);
  if (value == nullptr || value->is(Kind::kNone)) return fallback;
  if (!value->is(Kind::kInt) && !value->is(Kind::kBool)) {
    fail(fmt::format("argument '{}' is a {}, expected an integer", name, kind_name(*value)));
  }
  return value->as_int();
}

namespace {
bool is_function(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kMethod);
}

bool is_divisible(const Value& self, const Value& by, Heap& heap) {
  return !is_true(binary_operator("%", self, by, heap));
}
}  // namespace

bool apply_test(std::string_view name, const Value& self, const Args& args, Heap& heap) {
  if (name == "defined") return !self.is(Kind::kUndefined);
  if (name == "undefined") return self.is(Kind::kUndefined);
  if (name == "none") return self.is(Kind::kNone);
  if (name == "string") return self.is(Kind::kString);
  if (name == "mapping") return self.is(Kind::kDict);
  if (name == "sequence") return self.is(Kind::kList) || self.is(Kind::kString) || self.is(Kind::kDict);
  // Jinja's undefined values can be iterated over: nothing comes.
  if (name == "iterable") return self.is(Kind::kUndefined) || apply_test("sequence", self, args, heap);
  if (name == "number") return self.is_number();
  if (name == "integer") return self.is(Kind::kInt);
  if (name == "float") return self.is(Kind::kFloat);
  if (name == "boolean") return self.is(Kind::kBool);
  if (name == "true") return self.is(Kind::kBool) && self.as_bool();
  if (name == "false") return self.is(Kind::kBool) && !self.as_bool();
  if (name == "callable") return is_function(self);
  if (name == "even") return is_divisible(self, Value::integer(2), heap);
  if (name == "odd") return !is_divisible(self, Value::integer(2), heap);
  if (name == "divisibleby") return is_divisible(self, args.get(0, "num"), heap);
  if (name == "in") return contains(args.get(0, "seq"), self, heap);
  if (name == "eq" || name == "equalto" || name == "==") return equals(self, args.get(0, "other"), heap);
  if (name == "ne" || name == "!=") return !equals(self, args.get(0, "other"), heap);
  if (name == "lt" || name == "lessthan" || name == "<") return compare(self, args.get(0, "other"), heap) < 0;
  if (name == "le" || name == "<=") return compare(self, args.get(0, "other"), heap) <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return compare(self, args.get(0, "other"), heap) > 0;
  if (name == "ge" || name == ">=") return compare(self, args.get(0, "other"), heap) >= 0;
  if (name == "sameas") return self.kind() == args.get(0, "other").kind() && equals(self, args.get(0, "other"), heap);
  if (name == "lower") return to_text(self, heap) == to_lower(to_text(self, heap));
  if (name == "upper") return to_text(self, heap) == to_upper(to_text(self, heap));
  fail(fmt::format("test '{}' is not supported", name));
}

}  // namespace bz::formats::jinja
