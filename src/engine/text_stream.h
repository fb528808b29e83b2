// TextStream: a request's tokens -> the text to show, as soon as it is certain.
//
// Text comes out as whole UTF-8 characters. Text that may be the beginning of a stop string is held back until it is
// known not to be; a stop string itself never comes out. What comes out, joined, does not depend on how the tokens
// were grouped. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/stream_decoder.h"
#include "formats/tokenizer.h"

namespace bz::engine {

// StopMatcher: text -> text up to the stop string that is complete first (of those complete together, the longest).
class StopMatcher {
 public:
  // REQUIRES: no string is empty
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends to `out` what is certain now. Text after a match is dropped.
  void push(std::string_view text, std::string& out);
  // The end: what was held back comes out.
  void flush(std::string& out);
  bool matched() const { return matched_; }

 private:
  size_t match_start() const;
  size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;  // not yet certain
  bool matched_ = false;
};

class TextStream {
 public:
  // The tokenizer must outlive this. The text of the first min_tokens tokens is not searched for stop strings.
  TextStream(const formats::Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_control = true,
             int32_t min_tokens = 0)
      : decoder_(tokenizer, skip_control), matcher_(std::move(stops)), unsearched_(min_tokens) {}

  // Appends the new text to `out`. REQUIRES: the ids are in the vocabulary.
  void push(std::span<const int32_t> tokens, std::string& out);
  // No token follows: appends what was held back. Does nothing once stopped.
  void finish(std::string& out);
  // A stop string came: the caller ends the request. Later tokens are dropped.
  bool stopped() const { return matcher_.matched(); }

 private:
  formats::StreamDecoder decoder_;
  StopMatcher matcher_;
  int32_t unsearched_;  // tokens to come whose text is not searched
};

}  // namespace bz::engine
