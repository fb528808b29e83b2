// PreTokenizer: cuts a text into the pieces inside which BPE may merge (words, numbers, punctuation, spaces).
//
// A model's cut is a regular expression that its file names (tokenizer.ggml.pre). Thread-safe after creation.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;

namespace bz::formats {

// What a name in tokenizer.ggml.pre stands for.
struct PreTokenizerSpec {
  std::string_view name;
  const char* pattern;
  bool ignore_merges = false;  // a piece that is a token as a whole is not cut further
  bool nfc = false;            // texts are composed (Unicode NFC) first
  bool add_bos = false;        // unless the file says otherwise
};
// nullptr: not known.
const PreTokenizerSpec* find_pre_tokenizer(std::string_view name);
// "gpt-2, smollm, ...": for messages.
std::string known_pre_tokenizers();

class PreTokenizer {
 public:
  static Result<PreTokenizer> create(const PreTokenizerSpec& spec);

  // Appends the pieces of `text` in order: together they are the text. Bytes that are not UTF-8 are pieces of their
  // own, one for each run.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit PreTokenizer(pcre2_real_code_8* code) : code_(code) {}
  void split_valid(std::string_view text, std::vector<std::string_view>& pieces) const;

  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
};

}  // namespace bz::formats
