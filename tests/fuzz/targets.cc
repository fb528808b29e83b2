#include "targets.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "cli/inspect.h"
#include "formats/byte_alphabet.h"
#include "formats/chat_template.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/stream_decoder.h"
#include "formats/tokenizer.h"
#include "formats/utf8.h"
#include "models/model_config.h"

namespace bz::fuzz {
namespace {

using formats::GgufFile;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_message(const Status& status, std::string_view begin) {
  BZ_CHECK(status.exit_code() == 2);
  BZ_CHECK_MSG(status.message().starts_with(begin), "{}", status.message());
  BZ_CHECK_MSG(status.message().find('\n') == std::string::npos, "{}", status.message());
}

template <class T>
void use(const Result<T>& result, std::string_view begin) {
  if (!result.ok()) check_message(result.status(), begin);
}

void read_everything(const GgufFile& file) {
  for (const formats::GgufMetadata& entry : file.metadata()) {
    // A key may hold anything: only the keys that the engine asks for by name appear in messages as they are.
    (void)file.get_uint(entry.key);
    (void)file.get_float(entry.key);
    (void)file.get_bool(entry.key);
    (void)file.get_string(entry.key);
    (void)file.get_string_array(entry.key);
    (void)file.get_int_array(entry.key);
    (void)file.get_float_array(entry.key);
  }
  volatile unsigned sum = 0;
  for (const formats::GgufTensor& tensor : file.tensors()) {
    BZ_CHECK(file.find_tensor(tensor.name) == &tensor);
    if (tensor.num_bytes == 0) continue;
    sum = sum + static_cast<unsigned>(tensor.data[0]) + static_cast<unsigned>(tensor.data[tensor.num_bytes - 1]);
  }
}

// Decoding gives the text back, if every byte has a token and the text is not rewritten first.
void round_trip(const formats::Tokenizer& tokenizer, std::string_view text, bool exact) {
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = parse_special, .add_bos = false});
    if (exact) BZ_CHECK(tokenizer.decode(ids) == text);
    formats::StreamDecoder decoder(tokenizer, /*skip_control=*/false);
    std::string shown;
    for (const int32_t id : ids) shown += decoder.push(id);
    shown += decoder.flush();
    BZ_CHECK_EQ(formats::utf8_valid_prefix(shown), shown.size());
  }
}

// All bytes, the merges that lines of the form "left right" ask for, and a special token a line begun with '<'.
std::vector<std::byte> vocabulary_of(std::string_view lines, std::string_view pre) {
  std::vector<std::string> tokens(formats::byte_alphabet().begin(), formats::byte_alphabet().end());
  std::vector<int32_t> types(tokens.size(), 1);
  std::vector<std::string> merges;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.starts_with('<')) {
      tokens.push_back(line);
      types.push_back(line.size() % 2 == 0 ? 3 : 4);
    } else if (const size_t space = line.find(' ', 1); space != std::string::npos) {
      merges.push_back(line);
      tokens.push_back(line.substr(0, space) + line.substr(space + 1));
      types.push_back(1);
    }
  }
  formats::GgufWriter w;
  w.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", pre);
  w.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", types).add("tokenizer.ggml.merges", merges);
  return w.bytes();
}

void with_vocabulary(std::string_view lines, std::string_view pre, std::string_view text) {
  const std::vector<std::byte> bytes = vocabulary_of(lines, pre);
  const auto file = GgufFile::parse(bytes, "f");
  BZ_CHECK(file.ok());
  const auto loaded = formats::load_tokenizer(*file);
  use(loaded, "f: ");
  if (loaded.ok()) round_trip(**loaded, text, /*exact=*/pre != "qwen2");
}

constexpr std::array<std::string_view, 4> kPreTokenizers = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

const nlohmann::ordered_json& example_messages() {
  static const auto messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Héllo\n"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]},
    {"role": "tool", "content": [{"type": "text", "text": "x"}]}])");
  return messages;
}

}  // namespace

void gguf(std::span<const std::byte> input) {
  const auto file = GgufFile::parse(input, "f");
  if (!file.ok()) return check_message(file.status(), "f: ");
  read_everything(*file);
  (void)cli::inspect_text(*file);
  (void)cli::inspect_json(*file);
  const auto config = models::model_config_from_gguf(*file);
  use(config, "f: ");
  if (config.ok()) (void)models::rope_inv_freq(config->rope);
  use(formats::load_tokenizer(*file), "f: ");
}

void tokenizer(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto kind = static_cast<unsigned>(input[0]);
  const std::span<const std::byte> rest = input.subspan(1);
  const std::string_view text = as_text(rest);
  const std::string_view pre = kPreTokenizers[kind / 3 % kPreTokenizers.size()];
  if (kind % 3 == 0) {
    const auto file = GgufFile::parse(rest, "f");
    if (!file.ok()) return;
    const auto loaded = formats::load_tokenizer(*file);
    use(loaded, "f: ");
    if (loaded.ok()) round_trip(**loaded, text.substr(0, 4096), /*exact=*/false);
  } else if (kind % 3 == 1) {
    with_vocabulary("a b\nab c\nt h\nth e\n\xc4\xa0 the\n<|x|>\n<|xy|>\n<u>", pre, text);
  } else {
    with_vocabulary(text, pre, text);
  }
}

void chat_template(std::span<const std::byte> input) {
  const auto parsed = formats::ChatTemplate::parse(std::string(as_text(input)));
  if (!parsed.ok()) return check_message(parsed.status(), "chat template");
  formats::ChatTemplateOptions options;
  options.bos_token = "<s>";
  options.unix_seconds = 0;
  options.limits = {.max_steps = 20'000, .max_output_bytes = 1 << 16, .max_heap_bytes = 1 << 20};
  const auto text = parsed->render(example_messages(), options);
  if (!text.ok()) return check_message(text.status(), "");
  BZ_CHECK_LE(text->size(), options.limits.max_output_bytes);
}

}  // namespace bz::fuzz
