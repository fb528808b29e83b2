// UTF-8, one sequence at a time: whole, cut off at the end, or invalid (RFC 3629; no surrogates, no overlong forms).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bz::formats {

enum class Utf8Kind { kWhole, kIncomplete, kInvalid };

struct Utf8Step {
  Utf8Kind kind;
  size_t length;  // kWhole: bytes of the sequence. Else: bytes of its longest valid beginning, at least 1.
  uint32_t code_point;
};

// Looks at the front of `text`. REQUIRES: !text.empty()
Utf8Step utf8_step(std::string_view text);
void utf8_append(std::string& out, uint32_t code_point);
// Length of the longest valid prefix; a sequence cut off at the end is not part of it.
size_t utf8_valid_prefix(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

}  // namespace bz::formats
