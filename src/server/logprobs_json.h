// Log probabilities in the three forms that clients know: OpenAI's of completions and of chats, and vLLM's of prompts.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/request.h"
#include "formats/tokenizer.h"

namespace bz::server {

// The first token of a prompt: nothing predicts it.
inline engine::TokenLogprobs unscored(int32_t token) { return {.token = token, .rank = 0}; }

// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{token: logprob}, ...], "text_offset": [...]}. *offset:
// in characters, of the next token; moves on. Alternatives whose texts are alike (parts of characters) appear once, the
// most likely one; the token itself is always among them.
void append_completion_logprobs(std::string& out, const formats::Tokenizer& tokenizer,
                                std::span<const engine::TokenLogprobs> tokens, int64_t* offset);

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, ...]}, ...]}
void append_chat_logprobs(std::string& out, const formats::Tokenizer& tokenizer,
                          std::span<const engine::TokenLogprobs> tokens);

// [null, {"token id": {"logprob", "rank", "decoded_token"}, ...}, ...]
void append_prompt_logprobs(std::string& out, const formats::Tokenizer& tokenizer,
                            std::span<const engine::TokenLogprobs> tokens);

}  // namespace bz::server
