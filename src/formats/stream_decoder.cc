#include "formats/stream_decoder.h"

#include "formats/utf8.h"

namespace bz::formats {

std::string StreamDecoder::push(int32_t id) {
  if (skip_control_ && tokenizer_->is_control(id)) return {};
  return push_bytes(tokenizer_->token_bytes(id));
}

std::string StreamDecoder::push_bytes(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const size_t valid = utf8_valid_prefix(rest);
    text += rest.substr(0, valid);
    at += valid;
    if (at == held_.size()) break;
    const Utf8Step step = utf8_step(rest.substr(valid));
    if (step.kind == Utf8Kind::kIncomplete) break;
    text += kReplacementCharacter;
    at += step.length;
  }
  held_.erase(0, at);
  return text;
}

std::string StreamDecoder::flush() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace bz::formats
