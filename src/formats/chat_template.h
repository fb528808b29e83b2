// ChatTemplate: executes a model's own tokenizer.chat_template, a Jinja program that writes a conversation as a prompt.
//
// The language is the part of Jinja 2 that chat templates use, with the settings of Hugging Face's transformers
// (trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now; nothing is HTML-escaped): if, for, set,
// namespace, macro, break and continue, raw, expressions, and the usual filters, tests and methods. What is not known
// is an error that names it, never ignored.
//
// A template comes with a model file, so it may be hostile: steps, memory, output and nesting are bounded.
// Immutable after parsing: any number of threads may render.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bz::formats {

namespace jinja {
struct Template;
}

struct ChatTemplateLimits {
  int64_t max_steps = 5'000'000;  // nodes evaluated
  size_t max_output_bytes = size_t{16} << 20;
  size_t max_heap_bytes = size_t{64} << 20;  // besides eight times the input's bytes
};

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  nlohmann::ordered_json tools;           // an array; null: none
  nlohmann::ordered_json variables;       // an object of further variables (chat_template_kwargs); null: none
  std::optional<int64_t> unix_seconds{};  // the time for strftime_now; unset: the present
  ChatTemplateLimits limits{};
};

class ChatTemplate {
 public:
  // kInvalidArgument with the line at fault.
  static Result<ChatTemplate> parse(std::string_view source);

  // messages: an array of objects, as in OpenAI's chat requests.
  // kInvalidArgument when the template refuses the messages (raise_exception) or fails on them.
  Result<std::string> render(const nlohmann::ordered_json& messages, const ChatTemplateOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const jinja::Template> parsed_;
};

}  // namespace bz::formats
