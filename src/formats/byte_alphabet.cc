#include "formats/byte_alphabet.h"

#include "formats/utf8.h"

namespace bz::formats {
namespace {
constexpr uint32_t kNumCharacters = 256 + 68;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Tables {
  std::array<std::string, 256> character_of_byte;
  std::array<int16_t, kNumCharacters> byte_of_character;  // by code point; -1: outside the alphabet

  Tables() {
    byte_of_character.fill(-1);
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code_point = stands_for_itself(byte) ? byte : next++;
      utf8_append(character_of_byte[byte], code_point);
      byte_of_character[code_point] = static_cast<int16_t>(byte);
    }
  }
};
const Tables& tables() {
  static const Tables tables;
  return tables;
}
}  // namespace

const std::array<std::string, 256>& byte_alphabet() { return tables().character_of_byte; }

void append_alphabet_bytes(std::string_view text, std::string& out) {
  const auto& byte_of = tables().byte_of_character;
  const size_t start = out.size();
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const bool known =
        step.kind == Utf8Kind::kWhole && step.code_point < kNumCharacters && byte_of[step.code_point] >= 0;
    if (!known) {
      out.resize(start);
      out += text;
      return;
    }
    out += static_cast<char>(byte_of[step.code_point]);
    at += step.length;
  }
}

}  // namespace bz::formats
