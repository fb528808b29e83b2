// A tokenizer without a model file, for mock engines and tests: a token is a byte.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/byte_alphabet.h"
#include "formats/gguf_writer.h"
#include "formats/tokenizer.h"

namespace bz::formats {

// Token id = byte; the control token <|end|> ends a text and is kByteEndToken.
inline constexpr int32_t kByteEndToken = 256;
inline std::unique_ptr<Tokenizer> byte_tokenizer() {
  std::vector<std::string> tokens{byte_alphabet().begin(), byte_alphabet().end()};
  std::vector<int32_t> types(256, 1);
  tokens.push_back("<|end|>");
  types.push_back(static_cast<int32_t>(TokenType::kControl));
  GgufWriter w;
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types);
  w.add("tokenizer.ggml.merges", std::vector<std::string>{});
  w.add("tokenizer.ggml.eos_token_id", uint32_t{kByteEndToken});
  const auto bytes = w.bytes();
  auto file = GgufFile::parse(bytes, "bytes.gguf");
  BZ_CHECK_MSG(file.ok(), "{}", file.status().message());
  auto tokenizer = load_tokenizer(*file);
  BZ_CHECK_MSG(tokenizer.ok(), "{}", tokenizer.status().message());
  return std::move(tokenizer).value();
}

}  // namespace bz::formats
