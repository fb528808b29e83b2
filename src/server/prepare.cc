// prepare(): text to tokens, and the arithmetic of the context.
#include "server/generation.h"

namespace bz::server {
namespace {

// No vocabulary has longer tokens: a text longer than this for each token of the context cannot fit, and is refused
// before seconds go into tokenising it.
constexpr int64_t kMaxTokenBytes = 256;

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's

Status too_long(const char* field, int64_t num_tokens, const RequestLimits& limits, std::string_view unit) {
  return invalid_field(field, "{} has {} {}; the limit is {} tokens, prompt and answer together", field, num_tokens,
                       unit, limits.max_model_len);
}

Result<std::vector<int32_t>> encode(const Backend& backend, const RequestLimits& limits, const char* field,
                                    std::string_view text, bool add_bos) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes > limits.max_model_len * kMaxTokenBytes) return too_long(field, bytes, limits, "bytes");
  auto tokens = backend.tokenizer->encode(text, {.parse_special = true, .add_bos = add_bos});
  if (tokens.empty()) return invalid_field(field, "{} is empty: at least one token is needed", field);
  return tokens;
}

Result<std::vector<std::vector<int32_t>>> tokenise(const Backend& backend, const RequestLimits& limits,
                                                   GenerationRequest& r) {
  std::vector<std::vector<int32_t>> prompts;
  if (r.chat) {
    if (!backend.render_chat) {
      return invalid_field("messages", "this model has no chat template; use /v1/completions");
    }
    BZ_ASSIGN(const std::string text, backend.render_chat(r.messages, r.add_generation_prompt));
    // The template writes the beginning-of-sequence token itself.
    BZ_ASSIGN(auto tokens, encode(backend, limits, "messages", text, false));
    prompts.push_back(std::move(tokens));
    return prompts;
  }
  for (Prompt& prompt : r.prompts) {
    if (prompt.is_text) {
      BZ_ASSIGN(prompt.tokens, encode(backend, limits, "prompt", prompt.text, r.add_special_tokens));
    }
    prompts.push_back(std::move(prompt.tokens));
  }
  return prompts;
}

// How many tokens the answer may have.
Result<int32_t> settle_max_tokens(const GenerationRequest& r, int64_t prompt_tokens, const RequestLimits& limits) {
  const int64_t left = limits.max_model_len - prompt_tokens;
  if (left < 1) return too_long(r.chat ? "messages" : "prompt", prompt_tokens, limits, "tokens");
  if (!r.max_tokens) {
    // As many as fit the cache too: a client that gives no number asks for no particular one.
    const int64_t cached = std::max<int64_t>(limits.max_request_tokens - prompt_tokens, 1);
    return static_cast<int32_t>(std::min({left, cached, r.chat ? left : kDefaultCompletionTokens}));
  }
  if (*r.max_tokens <= left) return *r.max_tokens;
  return invalid_field(r.max_tokens_field,
                       "{} is {}, but the prompt's {} tokens leave {} of the {} that prompt and answer have together",
                       r.max_tokens_field, *r.max_tokens, prompt_tokens, left, limits.max_model_len);
}

}  // namespace

Result<PreparedRequest> prepare(const Backend& backend, const RequestLimits& limits, GenerationRequest request) {
  PreparedRequest out;
  BZ_ASSIGN(out.prompts, tokenise(backend, limits, request));
  for (const auto& prompt : out.prompts) {
    BZ_ASSIGN(const int32_t max_tokens, settle_max_tokens(request, static_cast<int64_t>(prompt.size()), limits));
    out.max_tokens.push_back(max_tokens);
  }
  for (size_t i = 0; request.echo && i < out.prompts.size(); ++i) {
    Prompt& prompt = request.prompts[i];
    out.echoes.push_back(prompt.is_text ? std::move(prompt.text) : backend.tokenizer->decode(out.prompts[i]));
  }
  out.request = std::move(request);
  out.request.prompts.clear();
  out.request.messages.clear();
  return out;
}

}  // namespace bz::server
