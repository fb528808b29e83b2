#include "formats/jinja/value.h"

#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace bz::formats::jinja {

void fail(std::string message) { throw Error{std::move(message)}; }

Value Value::pointer(Kind kind, const void* object) {
  Value value;
  value.kind_ = kind;
  value.data_.object = object;
  return value;
}
Value Value::undefined(std::string_view name) {
  Value value = string(name);
  value.kind_ = Kind::kUndefined;
  return value;
}
Value Value::none() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}
Value Value::boolean(bool b) {
  Value value = integer(b ? 1 : 0);
  value.kind_ = Kind::kBool;
  return value;
}
Value Value::integer(int64_t i) {
  Value value;
  value.kind_ = Kind::kInt;
  value.data_.integer = i;
  return value;
}
Value Value::number(double d) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.data_.number = d;
  return value;
}
Value Value::string(std::string_view s) {
  Value value;
  value.kind_ = Kind::kString;
  value.data_.text = s.data();
  value.length_ = s.size();
  return value;
}
Value Value::function(Function f) {
  Value value = integer(static_cast<int64_t>(f));
  value.kind_ = Kind::kFunction;
  return value;
}

void check_key(const Value& key) {
  if (!key.is_number() && !key.is(Kind::kString) && !key.is(Kind::kNone)) {
    fail(fmt::format("a {} cannot be a key", kind_name(key)));
  }
}

namespace {
template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

int compare_numbers(const Value& a, const Value& b) {
  if (!a.is(Kind::kFloat) && !b.is(Kind::kFloat)) return order(a.as_int(), b.as_int());
  return order(a.as_double(), b.as_double());
}

bool scalars_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const bool nan = (a.is(Kind::kFloat) && a.as_double() != a.as_double()) ||
                     (b.is(Kind::kFloat) && b.as_double() != b.as_double());
    return !nan && compare_numbers(a, b) == 0;
  }
  if (a.kind() != b.kind()) return false;
  return a.is(Kind::kString) ? a.as_string() == b.as_string() : a.is(Kind::kNone) || a.is(Kind::kUndefined);
}
}  // namespace

const Value* Dict::find(const Value& key) const {
  for (const auto& [k, v] : items) {
    if (scalars_equal(k, key)) return &v;
  }
  return nullptr;
}

void Dict::set(const Value& key, const Value& value) {
  for (auto& [k, v] : items) {
    if (scalars_equal(k, key)) {
      v = value;
      return;
    }
  }
  items.emplace_back(key, value);
}

void Heap::charge(size_t bytes) {
  if (bytes > bytes_left_) fail("the template needs more memory than it is allowed");
  bytes_left_ -= bytes;
}

void Heap::step(size_t count) {
  if (count > static_cast<size_t>(steps_left_)) fail("the template takes more steps than it is allowed");
  steps_left_ -= static_cast<int64_t>(count);
}

Value Heap::keep(std::string text) {
  charge(text.size() + sizeof(std::string));
  strings_.push_back(std::move(text));
  return Value::string(strings_.back());
}
List* Heap::new_list(size_t reserve) {
  charge(sizeof(List) + reserve * sizeof(Value));
  lists_.emplace_back();
  lists_.back().items.reserve(reserve);
  return &lists_.back();
}
Value Heap::keep_list(std::vector<Value> items, bool is_tuple) {
  charge(sizeof(List) + items.size() * sizeof(Value));
  lists_.push_back({std::move(items), is_tuple});
  return Value::list(&lists_.back());
}
Dict* Heap::new_dict(size_t reserve) {
  charge(sizeof(Dict) + reserve * 2 * sizeof(Value));
  dicts_.emplace_back();
  dicts_.back().items.reserve(reserve);
  return &dicts_.back();
}
Namespace* Heap::new_namespace() {
  charge(sizeof(Namespace));
  return &namespaces_.emplace_back();
}
Loop* Heap::new_loop() {
  charge(sizeof(Loop));
  return &loops_.emplace_back();
}
Macro* Heap::new_macro() {
  charge(sizeof(Macro));
  return &macros_.emplace_back();
}
Value Heap::new_method(const Value& self, std::string_view name) {
  charge(sizeof(Method));
  methods_.push_back({self, name});
  return Value::method(&methods_.back());
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "undefined";
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "string";
    case Kind::kList: return "list";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "namespace";
    case Kind::kLoop: return "loop";
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kMethod: return "function";
  }
  return "?";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0.0;
    case Kind::kString: return !value.as_string().empty();
    case Kind::kList: return !value.as_list().items.empty();
    case Kind::kDict: return !value.as_dict().items.empty();
    default: return true;
  }
}

namespace {
void check_depth(int depth) {
  if (depth > kMaxValueDepth) fail("a value is nested too deeply");
}

bool dicts_equal(const Dict& a, const Dict& b, Heap& heap, int depth) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    heap.step(1 + b.items.size() / 8);
    const Value* other = b.find(key);
    if (other == nullptr || !equals(value, *other, heap, depth + 1)) return false;
  }
  return true;
}
}  // namespace

bool equals(const Value& a, const Value& b, Heap& heap, int depth) {
  check_depth(depth);
  heap.step();
  if (a.kind() != b.kind() || a.is_number()) return scalars_equal(a, b);
  switch (a.kind()) {
    case Kind::kList: {
      const auto& x = a.as_list().items;
      const auto& y = b.as_list().items;
      if (x.size() != y.size() || a.as_list().is_tuple != b.as_list().is_tuple) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!equals(x[i], y[i], heap, depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: return dicts_equal(a.as_dict(), b.as_dict(), heap, depth);
    case Kind::kFunction: return a.as_function() == b.as_function();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kMethod: return a.address() == b.address();
    default: return scalars_equal(a, b);
  }
}

int compare(const Value& a, const Value& b, Heap& heap, int depth) {
  check_depth(depth);
  heap.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  // Byte order of UTF-8 is the order of code points.
  if (a.is(Kind::kString) && b.is(Kind::kString)) return order(a.as_string(), b.as_string());
  if (a.is(Kind::kList) && b.is(Kind::kList)) {
    const auto& x = a.as_list().items;
    const auto& y = b.as_list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i], heap, depth + 1)) return compare(x[i], y[i], heap, depth + 1);
    }
    return order(x.size(), y.size());
  }
  fail(fmt::format("{} and {} cannot be ordered", kind_name(a), kind_name(b)));
}

Value from_json(const nlohmann::ordered_json& json, Heap& heap, int depth) {
  check_depth(depth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::null:
    case Type::discarded:
    case Type::binary: return Value::none();
    case Type::boolean: return Value::boolean(json.get<bool>());
    case Type::number_integer: return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      return number <= INT64_MAX ? Value::integer(static_cast<int64_t>(number))
                                 : Value::number(static_cast<double>(number));
    }
    case Type::number_float: return Value::number(json.get<double>());
    case Type::string: return heap.keep(json.get_ref<const std::string&>());
    case Type::array: {
      List* list = heap.new_list(json.size());
      for (const auto& item : json) list->items.push_back(from_json(item, heap, depth + 1));
      return Value::list(list);
    }
    case Type::object: {
      Dict* dict = heap.new_dict(json.size());
      for (const auto& [key, item] : json.items()) {
        // Keys of a JSON object are distinct: no need for set()'s search.
        dict->items.emplace_back(heap.keep(key), from_json(item, heap, depth + 1));
      }
      return Value::dict(dict);
    }
  }
  return Value::none();
}

}  // namespace bz::formats::jinja
