#include "formats/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <limits>

#include "formats/utf8.h"

namespace bz::formats::jinja {
namespace {
bool is_space_code_point(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view first_character(std::string_view text) { return text.substr(0, character_bytes(text)); }
std::string_view last_character(std::string_view text) {
  for (size_t bytes = 2; bytes <= std::min<size_t>(4, text.size()); ++bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    const Utf8Step step = utf8_step(tail);
    if (step.kind == Utf8Kind::kWhole && step.length == bytes) return tail;
  }
  return text.substr(text.size() - 1);
}

bool belongs_to(std::string_view character, std::string_view set) {
  return set.empty() ? is_space(character) : set.find(character) != std::string_view::npos;
}

size_t limit(int64_t count) { return count < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(count); }

// Applies a mapping of code points to each character, with the place in the word (0: its first letter).
template <class Map>
std::string map_characters(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind == Utf8Kind::kWhole) {
      utf8_append(out, map(step.code_point));
    } else {
      out += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  return out;
}
uint32_t upper(uint32_t c) {
  if (c == 0xdf) return c;  // sharp s: to_upper() sees to it
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
uint32_t lower(uint32_t c) { return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
bool is_cased(uint32_t c) { return upper(c) != c || lower(c) != c; }
}  // namespace

size_t character_bytes(std::string_view text) { return utf8_step(text).length; }

size_t text_length(std::string_view text) {
  size_t length = 0;
  for (; !text.empty(); ++length) text.remove_prefix(character_bytes(text));
  return length;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(first_character(text));
    text.remove_prefix(out.back().size());
  }
  return out;
}

bool is_space(std::string_view character) {
  if (character.empty()) return false;
  const Utf8Step step = utf8_step(character);
  return step.kind == Utf8Kind::kWhole && is_space_code_point(step.code_point);
}

std::string_view strip_left(std::string_view text, std::string_view set) {
  while (!text.empty() && belongs_to(first_character(text), set)) text.remove_prefix(character_bytes(text));
  return text;
}
std::string_view strip_right(std::string_view text, std::string_view set) {
  while (!text.empty() && belongs_to(last_character(text), set)) text.remove_suffix(last_character(text).size());
  return text;
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (parts.size() == limit(max_splits)) {
      parts.push_back(strip_right(text));
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(first_character(text.substr(end)))) end += character_bytes(text.substr(end));
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (parts.size() < limit(max_splits)) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (parts.size() < limit(max_splits)) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      lines.push_back(text);
      break;
    }
    const size_t mark = text.substr(end).starts_with("\r\n") ? 2 : 1;
    lines.push_back(text.substr(0, keep_ends ? end + mark : end));
    text.remove_prefix(end + mark);
  }
  return lines;
}

std::string to_upper(std::string_view text) {
  const std::string mapped = map_characters(text, upper);
  // The one letter in common use whose upper case is two.
  return mapped.find("ß") == std::string::npos ? mapped : replace(mapped, "ß", "SS", -1);
}
std::string to_lower(std::string_view text) { return map_characters(text, lower); }
std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](uint32_t c) {
    const uint32_t mapped = first ? upper(c) : lower(c);
    first = false;
    return mapped;
  });
}
std::string title(std::string_view text) {
  bool in_word = false;
  return map_characters(text, [&](uint32_t c) {
    const uint32_t mapped = in_word ? lower(c) : upper(c);
    in_word = is_cased(c);
    return mapped;
  });
}

size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return text_length(text) + 1;
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++found;
  return found;
}

size_t replaced_size(std::string_view text, std::string_view from, std::string_view to, int64_t max_count) {
  const size_t found = std::min(count(text, from), limit(max_count));
  return text.size() - found * from.size() + found * to.size();
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t max_count) {
  std::string out;
  size_t left = limit(max_count);
  if (from.empty()) {
    for (; left > 0; --left) {
      out += to;
      if (text.empty()) break;
      out += first_character(text);
      text.remove_prefix(character_bytes(text));
    }
    out += text;
    return out;
  }
  for (; left > 0; --left) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

}  // namespace bz::formats::jinja
