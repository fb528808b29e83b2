// Tokenizer: text to token ids and back.
//
// An interface: byte-level BPE (bpe_tokenizer.h) now, SentencePiece-style vocabularies later. Immutable after loading,
// so any number of threads may use one.
//
// Texts are bytes, expected to be UTF-8. Bytes that are not UTF-8 are encoded as they are where the vocabulary has
// tokens for them. A byte without a token is dropped, as the reference implementations do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"
#include "formats/special_matcher.h"
#include "formats/vocabulary.h"

namespace bz::formats {

struct EncodeOptions {
  // Control tokens spelled in the text ("<|im_start|>") become their ids. Set for rendered chat templates; leave unset
  // for text from strangers. User-defined tokens always do.
  bool parse_special = false;
  // Begin with the beginning-of-sequence token, if the model wants one. Unset where a chat template writes it.
  bool add_bos = true;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The exact bytes, which may begin or end inside a character: use a StreamDecoder for text to show.
  // REQUIRES: every id is in the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_control = false) const;

  int32_t vocab_size() const { return vocabulary_.size(); }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::string_view token_bytes(int32_t id) const { return vocabulary_.bytes(id); }
  bool is_control(int32_t id) const { return vocabulary_.is_control(id); }
  bool is_end(int32_t id) const { return vocabulary_.is_end(id); }
  const std::vector<int32_t>& end_ids() const { return vocabulary_.end_ids(); }
  // Set if the file names one, whether or not texts begin with it.
  std::optional<int32_t> bos() const { return vocabulary_.bos(); }
  std::optional<int32_t> eos() const { return vocabulary_.eos(); }
  // encode() begins with bos() unless told otherwise.
  bool wants_bos() const { return wants_bos_; }

 protected:
  Tokenizer(Vocabulary vocabulary, bool wants_bos);
  // Appends the ids of a text without special tokens.
  virtual void encode_plain(std::string_view text, std::vector<int32_t>& ids) const = 0;

 private:
  Vocabulary vocabulary_;
  bool wants_bos_;
  SpecialMatcher specials_;
};

// The tokenizer that a model file describes (tokenizer.ggml.*).
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file);

}  // namespace bz::formats
