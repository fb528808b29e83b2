#include "server/openai_prompt.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace bz::server {
namespace {

Result<Prompt> read_prompt(const Json& value, const std::string& what, const RequestLimits& limits) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
    prompt.is_text = true;
    return prompt;
  }
  BZ_ASSIGN(prompt.tokens, read_token_ids(value, what, "prompt", limits.vocab_size));
  if (prompt.tokens.empty()) return invalid_field("prompt", "{} is empty", what);
  return prompt;
}

// A string, or an array of {"type": "text", "text": ...} parts, which are joined.
Result<std::string> read_content(const Json& message, const std::string& path) {
  const std::string what = path + ".content";
  const auto content = message.find("content");
  if (content == message.end()) return invalid_field(what, "{} is missing", what);
  if (content->is_null()) return std::string();  // an assistant's turn may be empty
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return invalid_field(what, "{} must be a string or an array of text parts, not {}", what, shown(*content));
  }
  std::string text;
  for (const Json& part : *content) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) {
      return invalid_field(what, "{} may only hold parts {{\"type\": \"text\", \"text\": ...}}, not {}", what,
                           shown(part));
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Result<ChatMessage> read_message(const Json& value, const std::string& path) {
  if (!value.is_object()) return invalid_field(path, "{} must be an object, not {}", path, shown(value));
  Fields in(value, path + ".");
  ChatMessage message;
  message.role = in.string("role", "");
  in.only("tool_calls", nullptr);
  in.only("function_call", nullptr);
  in.only("audio", nullptr);
  BZ_TRY(in.status());
  if (message.role.empty()) return invalid_field(path + ".role", "{}.role is missing", path);
  constexpr std::array kRoles{"system", "developer", "user", "assistant", "tool"};
  if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end()) {
    return invalid_field(path + ".role", "{}.role must be system, developer, user, assistant or tool, not {}", path,
                         shown(value["role"]));
  }
  BZ_ASSIGN(message.content, read_content(value, path));
  return message;
}

}  // namespace

Result<std::vector<Prompt>> read_prompts(const Json* value, const RequestLimits& limits) {
  if (!value) return invalid_field("prompt", "prompt is missing");
  if (!value->is_string() && !value->is_array()) {
    return invalid_field("prompt",
                         "prompt must be a string, an array of strings, an array of token ids or an array of "
                         "such arrays, not {}",
                         shown(*value));
  }
  std::vector<Prompt> prompts;
  const bool several =
      value->is_array() && !value->empty() && (value->front().is_string() || value->front().is_array());
  if (!several) {
    BZ_ASSIGN(Prompt prompt, read_prompt(*value, "prompt", limits));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (value->size() > kMaxPrompts) {
    return invalid_field("prompt", "prompt may hold at most {} prompts, not {}", kMaxPrompts, value->size());
  }
  for (const Json& element : *value) {
    BZ_ASSIGN(Prompt prompt, read_prompt(element, fmt::format("prompt[{}]", prompts.size()), limits));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<std::vector<ChatMessage>> read_messages(const Json* value) {
  if (!value) return invalid_field("messages", "messages is missing");
  if (!value->is_array() || value->empty()) {
    return invalid_field("messages", "messages must be an array of at least one message, not {}", shown(*value));
  }
  if (value->size() > kMaxMessages) {
    return invalid_field("messages", "messages may hold at most {} messages, not {}", kMaxMessages, value->size());
  }
  std::vector<ChatMessage> messages;
  for (const Json& element : *value) {
    BZ_ASSIGN(ChatMessage message, read_message(element, fmt::format("messages[{}]", messages.size())));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace bz::server
