// Valid inputs to start from: written into the corpus by write_seeds, mutated by fuzz_replay_test.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace bz::fuzz {

using Seed = std::pair<std::string, std::vector<std::byte>>;  // a file's name and its bytes

std::vector<Seed> gguf_seeds();
std::vector<Seed> tokenizer_seeds();
std::vector<Seed> chat_template_seeds();
std::vector<Seed> http_seeds();

}  // namespace bz::fuzz
