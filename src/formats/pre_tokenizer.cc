#include "formats/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "formats/utf8.h"

namespace bz::formats {
namespace {

// Unicode's White_Space. PCRE2's \s also takes U+180E, which Unicode gave up and tokenizers do not count.
#define BZ_SPACE "\\t-\\r\\x{85}\\p{Z}"
// A run of white space: all of it at the end of the text, else all but the last, which belongs to what follows.
#define BZ_SPACES "[" BZ_SPACE "]+(?![^" BZ_SPACE "])|[" BZ_SPACE "]+"
#define BZ_CONTRACTIONS "'(?:s|t|re|ve|m|ll|d)"

constexpr const char* kGpt2 = BZ_CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" BZ_SPACE "\\p{L}\\p{N}]+|" BZ_SPACES;

// GPT-2's expression applied between single digits. As one expression: digits never join anything, and spaces before
// a digit count as spaces at the end of a text.
constexpr const char* kSingleDigits = "\\p{N}|" BZ_CONTRACTIONS "| ?\\p{L}+| ?[^" BZ_SPACE "\\p{L}\\p{N}]+|[" BZ_SPACE
                                      "]+(?![^" BZ_SPACE "\\p{N}])|[" BZ_SPACE "]+";

#define BZ_CL100K(digits)                                                                 \
  "(?i:" BZ_CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^" BZ_SPACE \
  "\\p{L}\\p{N}]+[\\r\\n]*|[" BZ_SPACE "]*[\\r\\n]+|" BZ_SPACES
constexpr const char* kLlama3 = BZ_CL100K("{1,3}");
constexpr const char* kQwen2 = BZ_CL100K("");

constexpr PreTokenizerSpec kSpecs[] = {
    {"gpt-2", kGpt2},
    {"smollm", kSingleDigits},
    {"starcoder", kSingleDigits},
    {"refact", kSingleDigits},
    {"codeshell", kSingleDigits},
    {"llama-bpe", kLlama3, /*ignore_merges=*/true, /*nfc=*/false, /*add_bos=*/true},
    {"llama3", kLlama3, /*ignore_merges=*/true, /*nfc=*/false, /*add_bos=*/true},
    {"qwen2", kQwen2, /*ignore_merges=*/false, /*nfc=*/true},
};

// Per thread, so that split() is const and allocates nothing in the steady state.
struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 4 * 1024 * 1024, nullptr);

  MatchScratch() {
    BZ_CHECK(data != nullptr && context != nullptr && stack != nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

}  // namespace

const PreTokenizerSpec* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizerSpec& spec : kSpecs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::string known_pre_tokenizers() {
  std::string names;
  for (const PreTokenizerSpec& spec : kSpecs) {
    if (!names.empty()) names += ", ";
    names += spec.name;
  }
  return names;
}

void PreTokenizer::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<PreTokenizer> PreTokenizer::create(const PreTokenizerSpec& spec) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spec.pattern), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  BZ_CHECK_MSG(code != nullptr, "pre-tokenizer '{}': PCRE2 error {} at {}", spec.name, error, offset);
  PreTokenizer pre(code);
  // A machine without the just-in-time compiler still works, slower: pcre2_match then interprets.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return pre;
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) split_valid(text.substr(0, valid), pieces);
    text.remove_prefix(valid);
    size_t broken = 0;
    while (broken < text.size()) {
      const Utf8Step step = utf8_step(text.substr(broken));
      if (step.kind == Utf8Kind::kWhole) break;
      broken += step.length;
    }
    if (broken > 0) pieces.push_back(text.substr(0, broken));
    text.remove_prefix(broken);
  }
}

void PreTokenizer::split_valid(std::string_view text, std::vector<std::string_view>& pieces) const {
  thread_local MatchScratch scratch;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.data);
  size_t at = 0;
  while (at < text.size()) {
    const int found =
        pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    // The expressions match everywhere; should one give up (its limits are counted), the character stands alone.
    const bool matched = found >= 0 && span[1] > span[0];
    const size_t begin = matched ? span[0] : at;
    const size_t end = matched ? span[1] : at + utf8_step(text.substr(at)).length;
    if (begin > at) pieces.push_back(text.substr(at, begin - at));
    pieces.push_back(text.substr(begin, end - begin));
    at = end;
  }
}

}  // namespace bz::formats
