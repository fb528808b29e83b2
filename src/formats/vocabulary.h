// Vocabulary: what each token id stands for. Shared by every kind of tokenizer; read from tokenizer.ggml.* keys.
//
// Owns its memory: the file may be closed afterwards. Immutable after loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"

namespace bz::formats {

// Numbers of tokenizer.ggml.token_type.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// How a file's token texts become bytes.
enum class TokenText {
  kByteAlphabet,  // byte-level BPE: each character stands for a byte (byte_alphabet.h)
  kPlain,         // as written
};

class Vocabulary {
 public:
  // Checks array lengths, token types and special ids against each other.
  static Result<Vocabulary> load(const GgufFile& file, TokenText text);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  // The bytes that a token puts into a text; a control token's are its own spelling.
  // REQUIRES: 0 <= id < size()
  std::string_view bytes(int32_t id) const;
  TokenType type(int32_t id) const;
  // Markup for the model, not text for a reader.
  bool is_control(int32_t id) const { return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown; }
  // The model ends its turn or its text with it. By the file's ids, and by the usual names of end-of-turn tokens
  // (files often name one of several).
  bool is_end(int32_t id) const;
  const std::vector<int32_t>& end_ids() const { return end_ids_; }  // ascending
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }

 private:
  Status read_special_ids(const GgufFile& file);
  void find_end_ids();

  std::string arena_;            // every token's bytes, one after another
  std::vector<size_t> offsets_;  // [size + 1] into arena_
  std::vector<TokenType> types_;
  std::vector<int32_t> end_ids_;
  std::optional<int32_t> bos_;
  std::optional<int32_t> eos_;
};

}  // namespace bz::formats
