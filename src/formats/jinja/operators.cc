// Access to parts of values, arithmetic and iteration.
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "formats/jinja/builtins.h"
#include "formats/jinja/text.h"

namespace bz::formats::jinja {
namespace {

// Work on text is counted by the cache line.
size_t text_steps(std::string_view text) { return 1 + text.size() / 64; }

[[noreturn]] void fail_undefined(const Value& value) {
  const std::string_view name = value.as_string();
  if (name.empty()) fail("a value is undefined");
  fail(fmt::format("'{}' is undefined", name));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(1);  // counts recursive loops only, which are not supported
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < size) return loop.items->items[loop.index + 1];
  return Value::undefined(name);
}

// The element's place, or nothing if there is none.
std::optional<size_t> resolve_index(int64_t index, size_t size) {
  const auto n = static_cast<int64_t>(size);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  return static_cast<size_t>(index);
}

Value integer_operator(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+" || op == "-" || op == "*") {
    const bool overflowed = op == "+"   ? __builtin_add_overflow(a, b, &result)
                            : op == "-" ? __builtin_sub_overflow(a, b, &result)
                                        : __builtin_mul_overflow(a, b, &result);
    if (overflowed) fail("an integer is out of range");
    return Value::integer(result);
  }
  if (op == "//" || op == "%") {
    if (b == 0) fail("division by zero");
    if (b == -1) return op == "%" ? Value::integer(0) : integer_operator("-", 0, a);
    // Python rounds towards minus infinity, C++ towards zero.
    const bool adjust = a % b != 0 && ((a < 0) != (b < 0));
    return Value::integer(op == "%" ? a % b + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
  }
  if (op == "**" && b >= 0) {
    result = 1;
    // 63 doublings overflow anything but 0, 1 and -1, for which only the parity counts.
    const int64_t times = b > 64 ? 64 + b % 2 : b;
    for (int64_t i = 0; i < times; ++i) {
      if (__builtin_mul_overflow(result, a, &result)) fail("an integer is out of range");
    }
    return Value::integer(result);
  }
  return Value();
}

Value number_operator(std::string_view op, const Value& a, const Value& b) {
  if (!a.is(Kind::kFloat) && !b.is(Kind::kFloat) && op != "/" && !(op == "**" && b.as_int() < 0)) {
    return integer_operator(op, a.as_int(), b.as_int());
  }
  const double x = a.as_double();
  const double y = b.as_double();
  if (op == "+") return Value::number(x + y);
  if (op == "-") return Value::number(x - y);
  if (op == "*") return Value::number(x * y);
  if (op == "**") return Value::number(std::pow(x, y));
  if (y == 0.0) fail("division by zero");
  if (op == "/") return Value::number(x / y);
  if (op == "//") return Value::number(std::floor(x / y));
  return Value::number(x - y * std::floor(x / y));
}

Value repeat(const Value& value, int64_t times, Heap& heap) {
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  const size_t size = value.is(Kind::kString) ? value.as_string().size() : value.as_list().items.size() * sizeof(Value);
  if (size != 0 && count > std::numeric_limits<size_t>::max() / size / 2) fail("a repetition is too long");
  heap.charge(size * count);  // before it is made; keep() charges once more
  if (value.is(Kind::kString)) {
    std::string text;
    text.reserve(size * count);
    for (size_t i = 0; i < count && size != 0; ++i) text += value.as_string();
    return heap.keep(std::move(text));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count && size != 0; ++i) {
    items.insert(items.end(), value.as_list().items.begin(), value.as_list().items.end());
  }
  return heap.keep_list(std::move(items), value.as_list().is_tuple);
}

}  // namespace

std::string_view to_text(const Value& value, Heap& heap) {
  if (value.is(Kind::kString)) return value.as_string();
  std::string text;
  append_str(value, text);
  return heap.keep(std::move(text)).as_string();
}

int64_t length_of(const Value& value, Heap& heap) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString:
      heap.step(text_steps(value.as_string()));
      return static_cast<int64_t>(text_length(value.as_string()));
    case Kind::kList: return static_cast<int64_t>(value.as_list().items.size());
    case Kind::kDict: return static_cast<int64_t>(value.as_dict().items.size());
    default: fail(fmt::format("a {} has no length", kind_name(value)));
  }
}

std::vector<Value> iterate(const Value& value, Heap& heap) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined: break;
    case Kind::kList:
      heap.charge(value.as_list().items.size() * sizeof(Value));
      items = value.as_list().items;
      break;
    case Kind::kDict:
      heap.charge(value.as_dict().items.size() * sizeof(Value));
      for (const auto& [key, ignored] : value.as_dict().items) items.push_back(key);
      break;
    case Kind::kString:
      heap.charge(value.as_string().size() * sizeof(Value));
      for (const std::string_view c : characters(value.as_string())) items.push_back(Value::string(c));
      break;
    default: fail(fmt::format("a {} cannot be iterated over", kind_name(value)));
  }
  return items;
}

Value get_attribute(const Value& object, std::string_view name, Heap& heap) {
  switch (object.kind()) {
    case Kind::kUndefined: fail_undefined(object);
    case Kind::kLoop: return loop_attribute(object.as_loop(), name);
    case Kind::kNamespace: {
      const Dict& values = object.as_namespace().values;
      heap.step(1 + values.items.size() / 8);
      const Value* value = values.find(name);
      return value != nullptr ? *value : Value::undefined(name);
    }
    default: break;
  }
  // As Python has it, a dict's methods hide its keys: d.items is a method, d['items'] a key's value.
  if (has_method(object, name)) return heap.new_method(object, name);
  return get_item(object, Value::string(name), heap);
}

Value get_item(const Value& object, const Value& key, Heap& heap) {
  const std::string_view name = key.is(Kind::kString) ? key.as_string() : std::string_view();
  switch (object.kind()) {
    case Kind::kUndefined: fail_undefined(object);
    case Kind::kDict: {
      heap.step(1 + object.as_dict().items.size() / 8);
      const Value* value = object.as_dict().find(key);
      return value != nullptr ? *value : Value::undefined(name);
    }
    case Kind::kList: {
      if (!key.is(Kind::kInt) && !key.is(Kind::kBool)) return Value::undefined(name);
      const auto index = resolve_index(key.as_int(), object.as_list().items.size());
      return index ? object.as_list().items[*index] : Value::undefined("");
    }
    case Kind::kString: {
      if (!key.is(Kind::kInt) && !key.is(Kind::kBool)) return Value::undefined(name);
      heap.step(text_steps(object.as_string()));
      const std::string_view text = object.as_string();
      const auto index = resolve_index(key.as_int(), text_length(text));
      if (!index) return Value::undefined("");
      size_t at = 0;
      for (size_t i = 0; i < *index; ++i) at += character_bytes(text.substr(at));
      return Value::string(text.substr(at, character_bytes(text.substr(at))));
    }
    case Kind::kNamespace:
    case Kind::kLoop: return name.empty() ? Value() : get_attribute(object, name, heap);
    default: return Value::undefined(name);
  }
}

Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step, Heap& heap) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (!object.is(Kind::kString) && !object.is(Kind::kList)) fail(fmt::format("a {} has no slices", kind_name(object)));
  const auto bound = [](const Value& value, int64_t fallback) {
    if (value.is(Kind::kUndefined) || value.is(Kind::kNone)) return fallback;
    if (!value.is(Kind::kInt) && !value.is(Kind::kBool)) fail("a slice's bounds must be integers");
    return value.as_int();
  };
  const int64_t by = bound(step, 1);
  if (by == 0) fail("a slice's step is zero");
  const int64_t size = length_of(object, heap);
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? size : size - 1;
  const auto clamp = [&](const Value& value, int64_t fallback) {
    if (value.is(Kind::kUndefined) || value.is(Kind::kNone)) return fallback;
    int64_t at = bound(value, fallback);
    if (at < 0) at = at < -size ? low : at + size;
    return std::min(std::max(at, low), high);
  };
  const int64_t from = clamp(begin, by > 0 ? 0 : size - 1);
  const int64_t to = clamp(end, by > 0 ? size : -1);
  if (object.is(Kind::kString) && by == 1) {
    std::string_view text = object.as_string();
    for (int64_t i = 0; i < from; ++i) text.remove_prefix(character_bytes(text));
    size_t bytes = 0;
    for (int64_t i = from; i < to; ++i) bytes += character_bytes(text.substr(bytes));
    return Value::string(text.substr(0, bytes));
  }
  const std::vector<Value> all = iterate(object, heap);
  std::vector<Value> some;
  std::string text;
  // `by` may be huge: the loop must not overflow.
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    const Value& item = all[static_cast<size_t>(i)];
    if (object.is(Kind::kString)) {
      text += item.as_string();
    } else {
      some.push_back(item);
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (object.is(Kind::kString)) return heap.keep(std::move(text));
  return heap.keep_list(std::move(some), object.as_list().is_tuple);
}

Value binary_operator(std::string_view op, const Value& a, const Value& b, Heap& heap) {
  if (op == "~") {
    const std::string_view left = to_text(a, heap);
    const std::string_view right = to_text(b, heap);
    heap.charge(left.size() + right.size());
    return heap.keep(std::string(left) + std::string(right));
  }
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (a.is_number() && b.is_number()) return number_operator(op, a, b);
  const bool a_is_sequence = a.is(Kind::kString) || a.is(Kind::kList);
  const bool b_is_sequence = b.is(Kind::kString) || b.is(Kind::kList);
  if (op == "+" && a.is(Kind::kString) && b.is(Kind::kString)) {
    heap.charge(a.as_string().size() + b.as_string().size());
    return heap.keep(std::string(a.as_string()) + std::string(b.as_string()));
  }
  if (op == "+" && a.is(Kind::kList) && b.is(Kind::kList) && a.as_list().is_tuple == b.as_list().is_tuple) {
    heap.charge((a.as_list().items.size() + b.as_list().items.size()) * sizeof(Value));
    std::vector<Value> items = a.as_list().items;
    items.insert(items.end(), b.as_list().items.begin(), b.as_list().items.end());
    return heap.keep_list(std::move(items), a.as_list().is_tuple);
  }
  if (op == "*" && a_is_sequence && b.is(Kind::kInt)) return repeat(a, b.as_int(), heap);
  if (op == "*" && b_is_sequence && a.is(Kind::kInt)) return repeat(b, a.as_int(), heap);
  fail(fmt::format("'{}' does not apply to {} and {}", op, kind_name(a), kind_name(b)));
}

bool contains(const Value& container, const Value& item, Heap& heap) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is(Kind::kString)) fail(fmt::format("a string cannot contain a {}", kind_name(item)));
      heap.step(text_steps(container.as_string()));
      return container.as_string().find(item.as_string()) != std::string_view::npos;
    case Kind::kList:
      for (const Value& candidate : container.as_list().items) {
        if (equals(candidate, item, heap)) return true;
      }
      return false;
    case Kind::kDict:
      heap.step(1 + container.as_dict().items.size() / 8);
      return container.as_dict().find(item) != nullptr;
    default: fail(fmt::format("a {} contains nothing", kind_name(container)));
  }
}

}  // namespace bz::formats::jinja
