// What templates can call: filters, tests, methods and operators on values. All are pure, apart from heap and steps.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/jinja/value.h"

namespace bz::formats::jinja {

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at a place or, if it was not given there, under a name; nullptr: neither.
  const Value* find(size_t index, std::string_view name) const;
  Value get(size_t index, std::string_view name) const;  // throws Error when missing
  Value get_or(size_t index, std::string_view name, const Value& fallback) const;
  std::string_view string(size_t index, std::string_view name) const;
  int64_t integer_or(size_t index, std::string_view name, int64_t fallback) const;
};

// Throw Error for names that are not known and for values that do not fit.
Value apply_filter(std::string_view name, const Value& self, const Args& args, Heap& heap);
bool apply_test(std::string_view name, const Value& self, const Args& args, Heap& heap);

bool has_method(const Value& self, std::string_view name);
// REQUIRES: has_method(self, name)
Value call_method(const Value& self, std::string_view name, const Args& args, Heap& heap);

Value get_attribute(const Value& object, std::string_view name, Heap& heap);
Value get_item(const Value& object, const Value& key, Heap& heap);
// Undefined bounds: from the start, to the end, step 1.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step, Heap& heap);
Value binary_operator(std::string_view op, const Value& a, const Value& b, Heap& heap);
bool contains(const Value& container, const Value& item, Heap& heap);

// What a for loop goes over: a list's items, a dict's keys, a string's characters.
std::vector<Value> iterate(const Value& value, Heap& heap);
// len()
int64_t length_of(const Value& value, Heap& heap);
// Text as {{ }} writes it.
std::string_view to_text(const Value& value, Heap& heap);

}  // namespace bz::formats::jinja
