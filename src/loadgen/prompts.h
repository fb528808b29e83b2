// Prompts of a wanted length that no server has seen: random words, cut to tokens where the server can count them.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "loadgen/load.h"

namespace bz::loadgen {

struct PromptMaker {
  const Target* target = nullptr;
  int32_t in_len = 0;
  int32_t out_len = 0;
  // The server has /tokenize, so prompts are token ids and exact. Otherwise they are as many words as tokens wanted.
  bool exact = false;

  // The body of a streamed completion; another seed, another prompt.
  Result<std::string> body(uint64_t seed) const;
};

// Asks the server what it can do.
Result<PromptMaker> make_prompts(const Target& target, int32_t in_len, int32_t out_len);

// `count` words; everything follows from the seed.
std::string random_words(uint64_t seed, int32_t count);

}  // namespace bz::loadgen
