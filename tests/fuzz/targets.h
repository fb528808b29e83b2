// What the fuzzers run on each input. Also run by fuzz_replay_test on the committed corpus and on mutated seeds.
//
// Each function takes any bytes and returns; a broken promise (a crash, an error of several lines, a lost byte, an
// output past its limit) aborts.
#pragma once

#include <cstddef>
#include <span>

namespace bz::fuzz {

// A GGUF file: open it, read everything in it, show it, and take it for a model.
void gguf(std::span<const std::byte> input);
// First byte: what the rest is (a GGUF file with a tokenizer; lines of tokens and merges; a text to encode).
void tokenizer(std::span<const std::byte> input);
// A chat template, rendered on fixed messages with small limits.
void chat_template(std::span<const std::byte> input);
// First byte: what the rest is (the body of one of the server's routes; or whole HTTP requests, in pieces).
void http(std::span<const std::byte> input);

}  // namespace bz::fuzz
