#include "formats/chat_template.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "formats/gguf.h"
#include "formats/jinja/interpreter.h"
#include "formats/jinja/parser.h"

namespace bz::formats {
namespace {
constexpr size_t kMaxSourceBytes = size_t{1} << 20;
constexpr size_t kHeapBytesPerInputByte = 8;

// One line, even if the template's own words have several.
Status to_status(const jinja::Error& error) {
  const std::string message = printable(error.message, 500);
  if (error.raised) return invalid_argument("the model's chat template refuses the messages: {}", message);
  if (error.line == 0) return invalid_argument("chat template: {}", message);
  return invalid_argument("chat template, line {}: {}", error.line, message);
}

size_t input_bytes(const nlohmann::ordered_json& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size() + sizeof(std::string);
  size_t bytes = sizeof(jinja::Value);
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) bytes += key.size() + 2 * sizeof(std::string) + input_bytes(value);
  } else if (json.is_array()) {
    for (const auto& value : json) bytes += input_bytes(value);
  }
  return bytes;
}
int depth_of(const nlohmann::ordered_json& json, int left) {
  if (left == 0 || !json.is_structured()) return 1;
  int deepest = 0;
  for (const auto& value : json) deepest = std::max(deepest, depth_of(value, left - 1));
  return deepest + 1;
}
}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid_argument("chat template: has {} bytes, at most {} are allowed", source.size(), kMaxSourceBytes);
  }
  try {
    return ChatTemplate(std::shared_ptr<const jinja::Template>(jinja::parse_template(source)));
  } catch (const jinja::Error& error) {
    return to_status(error);
  }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages,
                                         const ChatTemplateOptions& options) const {
  for (const auto* input : {&messages, &options.tools, &options.variables}) {
    if (depth_of(*input, jinja::kMaxValueDepth) >= jinja::kMaxValueDepth) {
      return invalid_argument("chat template: the messages or variables are nested too deeply");
    }
  }
  const size_t input = input_bytes(messages) + input_bytes(options.tools) + input_bytes(options.variables);
  jinja::Heap heap(options.limits.max_heap_bytes + kHeapBytesPerInputByte * input, options.limits.max_steps);
  try {
    jinja::Interpreter interpreter(heap, options.limits.max_output_bytes,
                                   options.unix_seconds.value_or(static_cast<int64_t>(std::time(nullptr))));
    interpreter.define("bos_token", jinja::Value::string(options.bos_token));
    interpreter.define("eos_token", jinja::Value::string(options.eos_token));
    interpreter.define("add_generation_prompt", jinja::Value::boolean(options.add_generation_prompt));
    interpreter.define("messages", from_json(messages, heap));
    interpreter.define("tools", from_json(options.tools, heap));
    interpreter.define("documents", jinja::Value::none());
    if (options.variables.is_object()) {
      for (const auto& [name, value] : options.variables.items()) interpreter.define(name, from_json(value, heap));
    }
    return interpreter.run(*parsed_);
  } catch (const jinja::Error& error) {
    return to_status(error);
  }
}

}  // namespace bz::formats
