// Byte-level BPE (GPT-2's kind: SmolLM2, Llama 3, Qwen): pre-tokenize, then merge bytes inside each piece.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/gguf.h"
#include "formats/tokenizer.h"

namespace bz::formats {

// From tokenizer.ggml.{pre, tokens, token_type, merges, ...}. Refuses merges of unknown tokens.
Result<std::unique_ptr<Tokenizer>> load_bpe_tokenizer(const GgufFile& file);

}  // namespace bz::formats
