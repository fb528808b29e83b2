#include "formats/vocabulary.h"

#include <algorithm>

#include "formats/byte_alphabet.h"

namespace bz::formats {
namespace {
constexpr size_t kMaxTokens = size_t{1} << 24;

constexpr std::string_view kEndNames[] = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",         "<|end|>",
    "<end_of_turn>", "<|EOT|>",    "<EOT>",      "<|return|>",      "<|END_OF_TURN_TOKEN|>",
};

Result<TokenType> token_type(const GgufFile& file, size_t id, int64_t number) {
  if (number < 1 || number > 6) {
    return invalid_argument("{}: key 'tokenizer.ggml.token_type' holds {} for token {}, expected 1 to 6", file.name(),
                            number, id);
  }
  return static_cast<TokenType>(number);
}

// Markup is spelled as written in every vocabulary.
bool is_spelled_out(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
}
}  // namespace

Result<Vocabulary> Vocabulary::load(const GgufFile& file, TokenText text) {
  Vocabulary vocabulary;
  BZ_ASSIGN(const std::vector<std::string_view> tokens, file.get_string_array("tokenizer.ggml.tokens"));
  if (tokens.empty() || tokens.size() > kMaxTokens) {
    return invalid_argument("{}: key 'tokenizer.ggml.tokens' has {} tokens, expected 1 to {}", file.name(),
                            tokens.size(), kMaxTokens);
  }
  std::vector<int64_t> types(tokens.size(), 1);
  if (file.has("tokenizer.ggml.token_type")) {
    BZ_ASSIGN(types, file.get_int_array("tokenizer.ggml.token_type"));
    if (types.size() != tokens.size()) {
      return invalid_argument("{}: key 'tokenizer.ggml.token_type' has {} entries for {} tokens", file.name(),
                              types.size(), tokens.size());
    }
  }
  vocabulary.types_.reserve(tokens.size());
  vocabulary.offsets_.reserve(tokens.size() + 1);
  vocabulary.offsets_.push_back(0);
  for (size_t id = 0; id < tokens.size(); ++id) {
    BZ_ASSIGN(const TokenType type, token_type(file, id, types[id]));
    vocabulary.types_.push_back(type);
    if (text == TokenText::kPlain || is_spelled_out(type)) {
      vocabulary.arena_ += tokens[id];
    } else {
      append_alphabet_bytes(tokens[id], vocabulary.arena_);
    }
    vocabulary.offsets_.push_back(vocabulary.arena_.size());
  }
  BZ_TRY(vocabulary.read_special_ids(file));
  vocabulary.find_end_ids();
  return vocabulary;
}

Status Vocabulary::read_special_ids(const GgufFile& file) {
  const auto read = [&](const std::string& name, std::optional<int32_t>& id) -> Status {
    const std::string key = "tokenizer.ggml." + name + "_token_id";
    if (!file.has(key)) return ok_status();
    BZ_ASSIGN(const uint64_t value, file.get_uint(key));
    if (value >= types_.size()) {
      return invalid_argument("{}: key '{}' is {}: the vocabulary has {} tokens", file.name(), key, value,
                              types_.size());
    }
    id = static_cast<int32_t>(value);
    return ok_status();
  };
  std::optional<int32_t> turn_end;
  std::optional<int32_t> message_end;
  BZ_TRY(read("bos", bos_));
  BZ_TRY(read("eos", eos_));
  BZ_TRY(read("eot", turn_end));
  BZ_TRY(read("eom", message_end));
  for (const std::optional<int32_t>& id : {eos_, turn_end, message_end}) {
    if (id) end_ids_.push_back(*id);
  }
  return ok_status();
}

void Vocabulary::find_end_ids() {
  for (int32_t id = 0; id < size(); ++id) {
    if (!is_spelled_out(type(id))) continue;
    if (std::find(std::begin(kEndNames), std::end(kEndNames), bytes(id)) != std::end(kEndNames)) end_ids_.push_back(id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

std::string_view Vocabulary::bytes(int32_t id) const {
  BZ_CHECK(id >= 0 && id < size());
  const auto at = static_cast<size_t>(id);
  return std::string_view(arena_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

TokenType Vocabulary::type(int32_t id) const {
  BZ_CHECK(id >= 0 && id < size());
  return types_[static_cast<size_t>(id)];
}

bool Vocabulary::is_end(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

}  // namespace bz::formats
