// Filters (`x | trim`), found by name in a table.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "formats/jinja/builtins.h"
#include "formats/jinja/text.h"

namespace bz::formats::jinja {
namespace {

using Filter = Value (*)(const Value& self, const Args& args, Heap& heap);

// ---- Text ----

std::string_view text_of(const Value& self, Heap& heap) {
  const std::string_view text = to_text(self, heap);
  heap.step(1 + text.size() / 16);
  return text;
}

Value trim(const Value& self, const Args& args, Heap& heap) {
  const bool has_set = !args.get_or(0, "chars", Value::none()).is(Kind::kNone);
  return Value::string(strip(text_of(self, heap), has_set ? args.string(0, "chars") : std::string_view()));
}
Value upper(const Value& self, const Args&, Heap& heap) { return heap.keep(to_upper(text_of(self, heap))); }
Value lower(const Value& self, const Args&, Heap& heap) { return heap.keep(to_lower(text_of(self, heap))); }
Value capitalized(const Value& self, const Args&, Heap& heap) { return heap.keep(capitalize(text_of(self, heap))); }
Value titled(const Value& self, const Args&, Heap& heap) { return heap.keep(title(text_of(self, heap))); }
Value as_text(const Value& self, const Args&, Heap& heap) { return Value::string(to_text(self, heap)); }

Value replaced(const Value& self, const Args& args, Heap& heap) {
  const std::string_view text = text_of(self, heap);
  const std::string_view from = to_text(args.get(0, "old"), heap);
  const std::string_view to = to_text(args.get(1, "new"), heap);
  const int64_t count = args.integer_or(2, "count", -1);
  heap.charge(replaced_size(text, from, to, count));
  return heap.keep(replace(text, from, to, count));
}

Value indented(const Value& self, const Args& args, Heap& heap) {
  const Value width = args.get_or(0, "width", Value::integer(4));
  std::string pad;
  if (width.is(Kind::kString)) {
    pad = width.as_string();
  } else if (width.is(Kind::kInt) && width.as_int() >= 0 && width.as_int() <= 1000) {
    pad.assign(static_cast<size_t>(width.as_int()), ' ');
  } else {
    fail("indent needs a width from 0 to 1000");
  }
  const bool first = is_true(args.get_or(1, "first", Value()));
  const bool blank = is_true(args.get_or(2, "blank", Value()));
  const std::string_view text = text_of(self, heap);
  heap.charge(text.size() + (count(text, "\n") + 1) * pad.size());
  std::string out = first ? pad : "";
  for (size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    const bool next_is_blank = at + 1 >= text.size() || text[at + 1] == '\n';
    if (text[at] == '\n' && (blank || !next_is_blank)) out += pad;
  }
  return heap.keep(std::move(out));
}

Value to_json(const Value& self, const Args& args, Heap& heap) {
  const int64_t indent = args.integer_or(0, "indent", -1);
  if (indent > 100) fail("tojson needs an indent up to 100");
  if (args.find(2, "separators") != nullptr) fail("tojson with separators is not supported");
  std::string out;
  append_json(self, static_cast<int>(std::max<int64_t>(indent, -1)), is_true(args.get_or(3, "sort_keys", Value())),
              out);
  return heap.keep(std::move(out));
}

// ---- Numbers ----

Value to_int(const Value& self, const Args& args, Heap& heap) {
  const Value fallback = args.get_or(0, "default", Value::integer(0));
  if (self.is(Kind::kFloat)) {
    const double number = self.as_double();
    return std::abs(number) < 9e18 ? Value::integer(static_cast<int64_t>(number)) : fallback;
  }
  if (self.is_number()) return Value::integer(self.as_int());
  if (!self.is(Kind::kString)) return fallback;
  std::string_view text = strip(text_of(self, heap));
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? Value::integer(number) : fallback;
}
Value to_float(const Value& self, const Args& args, Heap& heap) {
  if (self.is_number()) return Value::number(self.as_double());
  const Value fallback = args.get_or(0, "default", Value::number(0.0));
  if (!self.is(Kind::kString)) return fallback;
  const std::string_view text = strip(text_of(self, heap));
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? Value::number(number) : fallback;
}
Value absolute(const Value& self, const Args&, Heap& heap) {
  if (!self.is_number()) fail("abs needs a number");
  return compare(self, Value::integer(0), heap) < 0 ? binary_operator("-", Value::integer(0), self, heap) : self;
}
Value rounded(const Value& self, const Args& args, Heap&) {
  if (!self.is_number()) fail("round needs a number");
  const int64_t digits = args.integer_or(0, "precision", 0);
  if (digits < -20 || digits > 20) fail("round needs a precision from -20 to 20");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return Value::number(std::nearbyint(self.as_double() * scale) / scale);
}

// ---- Lists ----

Value length(const Value& self, const Args&, Heap& heap) { return Value::integer(length_of(self, heap)); }
Value to_list(const Value& self, const Args&, Heap& heap) { return heap.keep_list(iterate(self, heap)); }
Value first(const Value& self, const Args&, Heap& heap) {
  const std::vector<Value> items = iterate(self, heap);
  return items.empty() ? Value() : items.front();
}
Value last(const Value& self, const Args&, Heap& heap) {
  const std::vector<Value> items = iterate(self, heap);
  return items.empty() ? Value() : items.back();
}
Value reversed(const Value& self, const Args&, Heap& heap) {
  std::vector<Value> items = iterate(self, heap);
  std::reverse(items.begin(), items.end());
  if (!self.is(Kind::kString)) return heap.keep_list(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.as_string();
  return heap.keep(std::move(text));
}

// The attribute that a filter names: "a.b" or a place in a list.
Value attribute_of(const Value& item, const Value& path, Heap& heap) {
  if (path.is(Kind::kInt)) return get_item(item, path, heap);
  if (!path.is(Kind::kString)) fail("an attribute's name must be a string");
  Value value = item;
  for (const std::string_view part : split_at(path.as_string(), ".", -1)) {
    if (value.is(Kind::kUndefined)) break;
    value = get_item(value, Value::string(part), heap);
  }
  return value;
}

Value joined(const Value& self, const Args& args, Heap& heap) {
  const std::string_view separator = to_text(args.get_or(0, "d", Value::string("")), heap);
  const Value* attribute = args.find(1, "attribute");
  std::string out;
  bool is_first = true;
  for (const Value& item : iterate(self, heap)) {
    const std::string_view text = to_text(attribute != nullptr ? attribute_of(item, *attribute, heap) : item, heap);
    heap.charge(separator.size() + text.size());
    if (!is_first) out += separator;
    is_first = false;
    out += text;
  }
  return heap.keep(std::move(out));
}

// Order and equality of sort, unique, min and max: without regard to case, unless asked.
struct ItemOrder {
  Heap& heap;
  Value attribute;
  bool case_sensitive;

  Value key(const Value& item) const {
    const Value value = attribute.is(Kind::kUndefined) ? item : attribute_of(item, attribute, heap);
    return !case_sensitive && value.is(Kind::kString) ? heap.keep(to_lower(value.as_string())) : value;
  }
};

Value sorted(const Value& self, const Args& args, Heap& heap) {
  const bool descending = is_true(args.get_or(0, "reverse", Value()));
  const ItemOrder order{heap, args.get_or(2, "attribute", Value()), is_true(args.get_or(1, "case_sensitive", Value()))};
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(self, heap)) keyed.emplace_back(order.key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? compare(b.first, a.first, heap) < 0 : compare(a.first, b.first, heap) < 0;
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (const auto& [key, item] : keyed) items.push_back(item);
  return heap.keep_list(std::move(items));
}
Value unique(const Value& self, const Args& args, Heap& heap) {
  const ItemOrder order{heap, args.get_or(1, "attribute", Value()), is_true(args.get_or(0, "case_sensitive", Value()))};
  std::vector<Value> keys;
  std::vector<Value> items;
  for (const Value& item : iterate(self, heap)) {
    const Value key = order.key(item);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& seen) { return equals(seen, key, heap); })) continue;
    keys.push_back(key);
    items.push_back(item);
  }
  return heap.keep_list(std::move(items));
}
Value extreme(const Value& self, const Args& args, Heap& heap, int sign) {
  const ItemOrder order{heap, args.get_or(1, "attribute", Value()), is_true(args.get_or(0, "case_sensitive", Value()))};
  Value best;
  bool is_first = true;
  for (const Value& item : iterate(self, heap)) {
    if (is_first || compare(order.key(item), order.key(best), heap) * sign > 0) best = item;
    is_first = false;
  }
  return best;
}
Value minimum(const Value& self, const Args& args, Heap& heap) { return extreme(self, args, heap, -1); }
Value maximum(const Value& self, const Args& args, Heap& heap) { return extreme(self, args, heap, 1); }
Value sum(const Value& self, const Args& args, Heap& heap) {
  const Value* attribute = args.find(0, "attribute");
  Value total = args.get_or(1, "start", Value::integer(0));
  for (const Value& item : iterate(self, heap)) {
    total = binary_operator("+", total, attribute != nullptr ? attribute_of(item, *attribute, heap) : item, heap);
  }
  return total;
}

// The arguments behind the first `count`.
Args rest_of(const Args& args, size_t count) {
  Args rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(std::min(count, rest.positional.size())));
  return rest;
}

// map, select and the like take anything false, None included, for nothing.
std::vector<Value> iterate_if_true(const Value& value, Heap& heap) {
  return is_true(value) ? iterate(value, heap) : std::vector<Value>();
}

Value mapped(const Value& self, const Args& args, Heap& heap) {
  std::vector<Value> items;
  const Value* attribute = args.positional.empty() ? args.find(0, "attribute") : nullptr;
  const std::string_view filter = attribute == nullptr ? args.string(0, "filter") : std::string_view();
  const Args rest = rest_of(args, 1);
  for (const Value& item : iterate_if_true(self, heap)) {
    if (attribute == nullptr) {
      items.push_back(apply_filter(filter, item, rest, heap));
      continue;
    }
    const Value value = attribute_of(item, *attribute, heap);
    items.push_back(value.is(Kind::kUndefined) ? args.get_or(1, "default", value) : value);
  }
  return heap.keep_list(std::move(items));
}

// select, reject, selectattr, rejectattr: by a test, or by truth if none is named.
Value filtered(const Value& self, const Args& args, Heap& heap, bool by_attribute, bool keep) {
  const size_t test_index = by_attribute ? 1 : 0;
  const bool has_test = args.positional.size() > test_index;
  const std::string_view test = has_test ? args.string(test_index, "test") : std::string_view();
  const Args rest = rest_of(args, test_index + 1);
  std::vector<Value> items;
  for (const Value& item : iterate_if_true(self, heap)) {
    const Value value = by_attribute ? attribute_of(item, args.get(0, "attribute"), heap) : item;
    const bool passes = has_test ? apply_test(test, value, rest, heap) : is_true(value);
    if (passes == keep) items.push_back(item);
  }
  return heap.keep_list(std::move(items));
}
Value selected(const Value& s, const Args& a, Heap& h) { return filtered(s, a, h, false, true); }
Value rejected(const Value& s, const Args& a, Heap& h) { return filtered(s, a, h, false, false); }
Value selected_by(const Value& s, const Args& a, Heap& h) { return filtered(s, a, h, true, true); }
Value rejected_by(const Value& s, const Args& a, Heap& h) { return filtered(s, a, h, true, false); }

// ---- Dicts and the rest ----

Value items_of(const Value& self, const Args&, Heap& heap) {
  if (self.is(Kind::kUndefined)) return heap.keep_list({});
  if (!self.is(Kind::kDict)) fail(fmt::format("items needs a dict, found a {}", kind_name(self)));
  return call_method(self, "items", {}, heap);
}
Value sorted_items(const Value& self, const Args& args, Heap& heap) {
  const Value by = args.get_or(1, "by", Value::string("key"));
  const bool by_value = by.is(Kind::kString) && by.as_string() == "value";
  Args sort_args;
  sort_args.named = {{"attribute", Value::integer(by_value ? 1 : 0)},
                     {"case_sensitive", args.get_or(0, "case_sensitive", Value())},
                     {"reverse", args.get_or(2, "reverse", Value())}};
  return sorted(items_of(self, {}, heap), sort_args, heap);
}
Value defaulted(const Value& self, const Args& args, Heap&) {
  const bool replace_false = is_true(args.get_or(1, "boolean", Value()));
  const bool missing = self.is(Kind::kUndefined) || (replace_false && !is_true(self));
  return missing ? args.get_or(0, "default_value", Value::string("")) : self;
}
Value unchanged(const Value& self, const Args&, Heap&) { return self; }
Value attribute(const Value& self, const Args& args, Heap& heap) {
  return get_attribute(self, args.string(0, "name"), heap);
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"trim", trim},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalized},
    {"title", titled},
    {"string", as_text},
    {"replace", replaced},
    {"indent", indented},
    {"tojson", to_json},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", rounded},
    {"length", length},
    {"count", length},
    {"list", to_list},
    {"first", first},
    {"last", last},
    {"reverse", reversed},
    {"join", joined},
    {"sort", sorted},
    {"unique", unique},
    {"min", minimum},
    {"max", maximum},
    {"sum", sum},
    {"map", mapped},
    {"select", selected},
    {"reject", rejected},
    {"selectattr", selected_by},
    {"rejectattr", rejected_by},
    {"items", items_of},
    {"dictsort", sorted_items},
    {"default", defaulted},
    {"d", defaulted},
    {"safe", unchanged},
    {"attr", attribute},
};

}  // namespace

Value apply_filter(std::string_view name, const Value& self, const Args& args, Heap& heap) {
  heap.step();
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter(self, args, heap);
  }
  fail(fmt::format("filter '{}' is not supported", name));
}

}  // namespace bz::formats::jinja
