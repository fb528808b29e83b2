#include "formats/bpe_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "formats/bpe_merges.h"
#include "formats/byte_alphabet.h"
#include "formats/pre_tokenizer.h"
#include "formats/string_index.h"
#include "formats/utf8.h"

namespace bz::formats {
namespace {

struct BpeTables {
  BpeMerges merges;
  std::array<int32_t, 256> byte_ids;  // -1: the vocabulary has no token for the byte
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(Vocabulary vocabulary, bool wants_bos, const PreTokenizerSpec& spec, PreTokenizer pre, BpeTables tables)
      : Tokenizer(std::move(vocabulary), wants_bos), spec_(spec), pre_(std::move(pre)), tables_(std::move(tables)) {
    if (spec_.ignore_merges) whole_pieces_ = index_of_normal_tokens();
  }

 protected:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string composed;
    if (spec_.nfc && compose(text, composed)) text = composed;
    std::vector<std::string_view> pieces;
    pieces.reserve(text.size() / 4 + 1);
    pre_.split(text, pieces);
    std::vector<int32_t> symbols;
    for (const std::string_view piece : pieces) encode_piece(piece, symbols, ids);
  }

 private:
  void encode_piece(std::string_view piece, std::vector<int32_t>& symbols, std::vector<int32_t>& ids) const {
    if (spec_.ignore_merges) {
      if (const int32_t id = whole_pieces_.find(piece); id >= 0) {
        ids.push_back(id);
        return;
      }
    }
    symbols.clear();
    for (const char c : piece) {
      const int32_t id = tables_.byte_ids[static_cast<uint8_t>(c)];
      if (id >= 0) symbols.push_back(id);
    }
    tables_.merges.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  // Special tokens must not be found here: their ids are for the matcher alone.
  StringIndex index_of_normal_tokens() const {
    std::vector<std::string_view> texts(static_cast<size_t>(vocab_size()));
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (vocabulary().type(id) == TokenType::kNormal) texts[static_cast<size_t>(id)] = token_bytes(id);
    }
    return StringIndex(std::move(texts));
  }

  // NFC of the UTF-8 parts of a text. False: nothing to do.
  static bool compose(std::string_view text, std::string& out) {
    const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
    if (std::all_of(text.begin(), text.end(), is_ascii)) return false;
    while (!text.empty()) {
      const size_t valid = utf8_valid_prefix(text);
      utf8proc_uint8_t* composed = nullptr;
      const auto length =
          utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(valid),
                       &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (length >= 0) {
        out.append(reinterpret_cast<const char*>(composed), static_cast<size_t>(length));
      } else {
        out += text.substr(0, valid);
      }
      std::free(composed);
      text.remove_prefix(valid);
      if (text.empty()) break;
      out += text[0];  // a broken byte
      text.remove_prefix(1);
    }
    return true;
  }

  PreTokenizerSpec spec_;
  PreTokenizer pre_;
  BpeTables tables_;
  StringIndex whole_pieces_;
};

Status add_merge(const GgufFile& file, const StringIndex& tokens, std::string_view line, size_t rank,
                 std::string& buffer, BpeMerges& merges) {
  // Tokens hold no spaces (the alphabet writes them otherwise), so the first one past the start parts them.
  const size_t space = line.find(' ', 1);
  const auto bad = [&](std::string_view why) {
    return invalid_argument("{}: key 'tokenizer.ggml.merges' has '{}' at index {}: {}", file.name(), printable(line),
                            rank, why);
  };
  if (space == std::string_view::npos) return bad("expected two tokens with a space between");
  const int32_t left = tokens.find(line.substr(0, space));
  const int32_t right = tokens.find(line.substr(space + 1));
  buffer.assign(line.substr(0, space));
  buffer += line.substr(space + 1);
  const int32_t merged = tokens.find(buffer);
  if (left < 0 || right < 0 || merged < 0) return bad("a token of it is not in the vocabulary");
  merges.add(left, right, {static_cast<uint32_t>(rank), merged});
  return ok_status();
}

Result<BpeTables> load_tables(const GgufFile& file) {
  BZ_ASSIGN(std::vector<std::string_view> texts, file.get_string_array("tokenizer.ggml.tokens"));
  BZ_ASSIGN(const std::vector<std::string_view> lines, file.get_string_array("tokenizer.ggml.merges"));
  const StringIndex tokens(std::move(texts));
  BpeTables tables{BpeMerges(lines.size()), {}};
  std::string buffer;
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    BZ_TRY(add_merge(file, tokens, lines[rank], rank, buffer, tables.merges));
  }
  for (size_t byte = 0; byte < 256; ++byte) tables.byte_ids[byte] = tokens.find(byte_alphabet()[byte]);
  return tables;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_bpe_tokenizer(const GgufFile& file) {
  BZ_ASSIGN(const std::string_view pre_name, file.get_string("tokenizer.ggml.pre"));
  const PreTokenizerSpec* spec = find_pre_tokenizer(pre_name);
  if (spec == nullptr) {
    return invalid_argument("{}: key 'tokenizer.ggml.pre' is '{}', which is not supported yet (supported: {})",
                            file.name(), printable(pre_name), known_pre_tokenizers());
  }
  BZ_ASSIGN(Vocabulary vocabulary, Vocabulary::load(file, TokenText::kByteAlphabet));
  BZ_ASSIGN(const bool wants_bos, file.get_bool("tokenizer.ggml.add_bos_token", spec->add_bos));
  BZ_ASSIGN(PreTokenizer pre, PreTokenizer::create(*spec));
  BZ_ASSIGN(BpeTables tables, load_tables(file));
  std::unique_ptr<Tokenizer> tokenizer =
      std::make_unique<BpeTokenizer>(std::move(vocabulary), wants_bos, *spec, std::move(pre), std::move(tables));
  return tokenizer;
}

}  // namespace bz::formats
