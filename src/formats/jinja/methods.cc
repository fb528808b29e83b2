// Methods of strings, dicts, lists and loops, as Python names them. Nothing here changes its object: transformers'
// sandbox forbids append, update and the like too.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "formats/jinja/builtins.h"
#include "formats/jinja/text.h"

namespace bz::formats::jinja {
namespace {

constexpr std::array<std::string_view, 25> kStringMethods = {
    "strip",   "lstrip", "rstrip", "split",  "rsplit",  "splitlines",   "startswith",   "endswith", "upper",
    "lower",   "title",  "find",   "rfind",  "replace", "capitalize",   "count",        "isdigit",  "isspace",
    "isalpha", "join",   "index",  "format", "isalnum", "removeprefix", "removesuffix",
};
constexpr std::array<std::string_view, 5> kDictMethods = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 2> kListMethods = {"index", "count"};
constexpr std::array<std::string_view, 1> kLoopMethods = {"cycle"};

template <size_t N>
bool has(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value keep_views(const std::vector<std::string_view>& parts, Heap& heap) {
  List* list = heap.new_list(parts.size());
  for (const std::string_view part : parts) list->items.push_back(Value::string(part));
  return Value::list(list);
}

// None, like no argument, means white space.
std::string_view strip_set(const Args& args) {
  return args.get_or(0, "chars", Value::none()).is(Kind::kNone) ? std::string_view() : args.string(0, "chars");
}

bool has_affix(std::string_view text, const Value& affix, bool at_start) {
  if (affix.is(Kind::kList)) {
    const auto& items = affix.as_list().items;
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return item.is(Kind::kString) && has_affix(text, item, at_start); });
  }
  if (!affix.is(Kind::kString)) fail(fmt::format("expected a string, found a {}", kind_name(affix)));
  return at_start ? text.starts_with(affix.as_string()) : text.ends_with(affix.as_string());
}

Value split(std::string_view text, const Args& args, bool from_right, Heap& heap) {
  const int64_t max_splits = args.integer_or(1, "maxsplit", -1);
  heap.charge(text.size());
  if (args.get_or(0, "sep", Value::none()).is(Kind::kNone)) {
    if (from_right && max_splits >= 0) fail("rsplit with maxsplit needs a separator");
    return keep_views(split_spaces(text, max_splits), heap);
  }
  const std::string_view separator = args.string(0, "sep");
  if (separator.empty()) fail("a separator is empty");
  heap.charge(count(text, separator) * sizeof(std::string_view));
  return keep_views(
      from_right ? split_at_from_right(text, separator, max_splits) : split_at(text, separator, max_splits), heap);
}

// The place in code points, or -1.
int64_t find_text(std::string_view text, std::string_view part, bool from_right) {
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  return at == std::string_view::npos ? -1 : static_cast<int64_t>(text_length(text.substr(0, at)));
}

// str.format() with {}, {0} and {name}; what may follow the name in Python is not supported.
Value format(std::string_view text, const Args& args, Heap& heap) {
  std::string out;
  size_t next = 0;
  const auto append = [&](std::string_view part) {
    heap.charge(part.size());
    out += part;
  };
  while (!text.empty()) {
    const size_t brace = text.find_first_of("{}");
    append(text.substr(0, brace));
    if (brace == std::string_view::npos) break;
    text.remove_prefix(brace);
    if (text.starts_with("{{") || text.starts_with("}}")) {
      append(text.substr(0, 1));
      text.remove_prefix(2);
      continue;
    }
    const size_t close = text.find('}');
    if (text[0] == '}' || close == std::string_view::npos) fail("a format has a single brace");
    const std::string_view field = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    const bool is_place = std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_place) {
      size_t place = field.empty() ? next++ : 0;
      if (field.size() > 3) fail("a format names an argument that is not there");
      for (const char c : field) place = place * 10 + static_cast<size_t>(c - '0');
      append(to_text(args.get(place, ""), heap));
    } else {
      append(to_text(args.get(args.positional.size(), field), heap));
    }
  }
  return heap.keep(std::move(out));
}

template <class Predicate>
bool all_characters(std::string_view text, Predicate predicate) {
  const auto all = characters(text);
  return !all.empty() && std::all_of(all.begin(), all.end(), predicate);
}
bool is_letter(std::string_view c) { return to_upper(c) != c || to_lower(c) != c; }
bool is_digit(std::string_view c) { return c.size() == 1 && c[0] >= '0' && c[0] <= '9'; }

Value call_string_method(std::string_view text, std::string_view name, const Args& args, Heap& heap) {
  heap.step(1 + text.size() / 16);
  if (name == "strip") return Value::string(strip(text, strip_set(args)));
  if (name == "lstrip") return Value::string(strip_left(text, strip_set(args)));
  if (name == "rstrip") return Value::string(strip_right(text, strip_set(args)));
  if (name == "split" || name == "rsplit") return split(text, args, name == "rsplit", heap);
  if (name == "splitlines") {
    heap.charge(text.size());
    return keep_views(split_lines(text, is_true(args.get_or(0, "keepends", Value()))), heap);
  }
  if (name == "startswith") return Value::boolean(has_affix(text, args.get(0, "prefix"), true));
  if (name == "endswith") return Value::boolean(has_affix(text, args.get(0, "suffix"), false));
  if (name == "upper") return heap.keep(to_upper(text));
  if (name == "lower") return heap.keep(to_lower(text));
  if (name == "title") return heap.keep(title(text));
  if (name == "capitalize") return heap.keep(capitalize(text));
  if (name == "find") return Value::integer(find_text(text, args.string(0, "sub"), false));
  if (name == "rfind") return Value::integer(find_text(text, args.string(0, "sub"), true));
  if (name == "index") {
    const int64_t at = find_text(text, args.string(0, "sub"), false);
    if (at < 0) fail("substring not found");
    return Value::integer(at);
  }
  if (name == "count") return Value::integer(static_cast<int64_t>(count(text, args.string(0, "sub"))));
  if (name == "replace") return apply_filter("replace", Value::string(text), args, heap);
  if (name == "join") {
    const Args separator{{Value::string(text)}, {}};
    return apply_filter("join", args.get(0, "iterable"), separator, heap);
  }
  if (name == "format") return format(text, args, heap);
  if (name == "removeprefix") {
    const std::string_view prefix = args.string(0, "prefix");
    return Value::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text);
  }
  if (name == "removesuffix") {
    const std::string_view suffix = args.string(0, "suffix");
    return Value::string(text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text);
  }
  if (name == "isspace") return Value::boolean(all_characters(text, is_space));
  if (name == "isdigit") return Value::boolean(all_characters(text, is_digit));
  if (name == "isalpha") return Value::boolean(all_characters(text, is_letter));
  return Value::boolean(all_characters(text, [](std::string_view c) { return is_letter(c) || is_digit(c); }));
}

Value call_dict_method(const Dict& dict, std::string_view name, const Args& args, Heap& heap) {
  if (name == "get") {
    const Value key = args.get(0, "key");
    heap.step(1 + dict.items.size() / 8);
    const Value* value = dict.find(key);
    return value != nullptr ? *value : args.get_or(1, "default", Value::none());
  }
  if (name == "copy") return Value::dict(&dict);  // nobody can tell
  heap.step(1 + dict.items.size());
  List* list = heap.new_list(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    if (name == "keys") list->items.push_back(key);
    if (name == "values") list->items.push_back(value);
    if (name == "items") list->items.push_back(heap.keep_list({key, value}, /*is_tuple=*/true));
  }
  return Value::list(list);
}

Value call_list_method(const List& list, std::string_view name, const Args& args, Heap& heap) {
  const Value wanted = args.get(0, "value");
  int64_t found = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!equals(list.items[i], wanted, heap)) continue;
    if (name == "index") return Value::integer(static_cast<int64_t>(i));
    ++found;
  }
  if (name == "index") fail("the value is not in the list");
  return Value::integer(found);
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: return has(kStringMethods, name);
    case Kind::kDict: return has(kDictMethods, name);
    case Kind::kList: return has(kListMethods, name);
    case Kind::kLoop: return has(kLoopMethods, name);
    default: return false;
  }
}

Value call_method(const Value& self, std::string_view name, const Args& args, Heap& heap) {
  switch (self.kind()) {
    case Kind::kString: return call_string_method(self.as_string(), name, args, heap);
    case Kind::kDict: return call_dict_method(self.as_dict(), name, args, heap);
    case Kind::kList: return call_list_method(self.as_list(), name, args, heap);
    case Kind::kLoop: {
      if (args.positional.empty()) fail("cycle() needs values");
      return args.positional[self.as_loop().index % args.positional.size()];
    }
    default: fail(fmt::format("a {} has no methods", kind_name(self)));
  }
}

}  // namespace bz::formats::jinja
