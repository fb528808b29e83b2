#include "formats/utf8.h"

#include <cstring>

#include "base/check.h"

namespace bz::formats {
namespace {
// What the first byte promises: the sequence's length and the bounds of its second byte (which rule out overlong
// forms, surrogates and values past U+10FFFF).
struct Lead {
  int length;
  uint8_t second_min, second_max;
};
Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}
}  // namespace

Utf8Step utf8_step(std::string_view text) {
  BZ_CHECK(!text.empty());
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1, 0};
  if (lead.length == 1) return {Utf8Kind::kWhole, 1, first};
  uint32_t code_point = first & (0x7fu >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    const auto length = static_cast<size_t>(i);
    if (length == text.size()) return {Utf8Kind::kIncomplete, length, 0};
    const auto byte = static_cast<uint8_t>(text[length]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xbf;
    if (byte < min || byte > max) return {Utf8Kind::kInvalid, length, 0};
    code_point = (code_point << 6) | (byte & 0x3fu);
  }
  return {Utf8Kind::kWhole, static_cast<size_t>(lead.length), code_point};
}

void utf8_append(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3f)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xe0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is that.
    uint64_t word = 0;
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kWhole) return at;
    at += step.length;
  }
  return at;
}

}  // namespace bz::formats
