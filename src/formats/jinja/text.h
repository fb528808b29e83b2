// Python's string operations on UTF-8: lengths, indices and cases count code points, not bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bz::formats::jinja {

size_t text_length(std::string_view text);
// Bytes of the first code point; a broken byte counts as one. REQUIRES: !text.empty()
size_t character_bytes(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

// With an empty set of characters: white space as Python's str.strip() understands it.
std::string_view strip_left(std::string_view text, std::string_view set = {});
std::string_view strip_right(std::string_view text, std::string_view set = {});
inline std::string_view strip(std::string_view text, std::string_view set = {}) {
  return strip_right(strip_left(text, set), set);
}
bool is_space(std::string_view character);

// str.split(): at runs of white space, no empty parts; at most max_splits cuts (< 0: any number).
std::vector<std::string_view> split_spaces(std::string_view text, int64_t max_splits);
// str.split(separator). REQUIRES: !separator.empty()
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  int64_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

// str.replace(); at most max_count times (< 0: any number).
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t max_count);
// The size that replace() would give, for a check before it is made.
size_t replaced_size(std::string_view text, std::string_view from, std::string_view to, int64_t max_count);
// Non-overlapping places of `part`; of an empty one, one at each end of a character.
size_t count(std::string_view text, std::string_view part);

}  // namespace bz::formats::jinja
