// The alphabet of byte-level BPE: one printable character per byte, so that any bytes can be written as text.
//
// Bytes that are printable in Latin-1 stand for themselves; the other 68 take U+0100, U+0101, ... in order (GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bz::formats {

// [256]: the UTF-8 form of each byte's character.
const std::array<std::string, 256>& byte_alphabet();

// Appends the bytes that `text` stands for. A text with any character outside the alphabet is appended as it is.
void append_alphabet_bytes(std::string_view text, std::string& out);

}  // namespace bz::formats
