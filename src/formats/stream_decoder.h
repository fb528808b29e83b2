// StreamDecoder: turns tokens, one at a time, into text that is always whole UTF-8.
//
// A token may end inside a character: that tail is held back until the next token completes it. Bytes that can never
// become a character come out as U+FFFD, one for each longest broken beginning (as Unicode recommends).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/tokenizer.h"

namespace bz::formats {

class StreamDecoder {
 public:
  // The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_control = true)
      : tokenizer_(&tokenizer), skip_control_(skip_control) {}

  // The text that this token completes; may be empty. REQUIRES: the id is in the vocabulary.
  std::string push(int32_t id);
  // As push(), of raw bytes.
  std::string push_bytes(std::string_view bytes);
  // The end: a tail that is still held back comes out as U+FFFD.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_control_;
  std::string held_;  // at most three bytes
};

}  // namespace bz::formats
