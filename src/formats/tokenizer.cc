#include "formats/tokenizer.h"

#include <utility>

#include "formats/bpe_tokenizer.h"

namespace bz::formats {

Tokenizer::Tokenizer(Vocabulary vocabulary, bool wants_bos)
    : vocabulary_(std::move(vocabulary)), wants_bos_(wants_bos && vocabulary_.bos().has_value()) {
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const TokenType type = vocabulary_.type(id);
    const bool user_defined = type == TokenType::kUserDefined;
    if (user_defined || is_control(id)) specials_.add(token_bytes(id), id, user_defined);
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  if (options.add_bos && wants_bos_) ids.push_back(*bos());
  size_t at = 0;
  while (at < text.size()) {
    const SpecialMatcher::Match match = specials_.find(text, at, !options.parse_special);
    const size_t plain_end = match.id >= 0 ? match.begin : text.size();
    if (plain_end > at) encode_plain(text.substr(at, plain_end - at), ids);
    if (match.id >= 0) ids.push_back(match.id);
    at = plain_end + match.length;
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_control) const {
  std::string text;
  for (const int32_t id : ids) {
    if (skip_control && is_control(id)) continue;
    text += token_bytes(id);
  }
  return text;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file) {
  BZ_ASSIGN(const std::string_view model, file.get_string("tokenizer.ggml.model"));
  if (model == "gpt2") return load_bpe_tokenizer(file);
  return invalid_argument("{}: key 'tokenizer.ggml.model' is '{}', which is not supported yet (supported: gpt2)",
                          file.name(), printable(model));
}

}  // namespace bz::formats
