// Runs llama.cpp over a given list of token ids: teacher-forced logits, or a greedy continuation.
//
//   llama_logits MODEL.gguf IDS OUT [--batch N] [--threads N] [--kv f16|f32] [--flash auto|on|off] [--greedy N]
//
// IDS:  raw little-endian int32, one per token, no header.
// OUT:  without --greedy, raw little-endian float32 [num_ids, vocab]: row i are the logits after ids[0..i];
//       with --greedy N, raw little-endian int32 [N]: the ids that follow, end-of-sequence ignored, ties to the lowest
//       id.
// --batch N: tokens per decode call (default 512). 1 takes llama.cpp's path for single tokens, larger ones its path for
//       prompts; the two round differently. The one-line summary on stdout is JSON.
// Built by build_llama_cpp.sh against the peer's own libraries; no part of Blockzero links against it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"

namespace {

struct Options {
  std::string model, ids, out;
  int batch = 512;
  int threads = 2;
  int greedy = 0;
  ggml_type kv_type = GGML_TYPE_F16;
  llama_flash_attn_type flash = LLAMA_FLASH_ATTN_TYPE_AUTO;
};

[[noreturn]] void die(int code, const std::string& message) {
  std::fprintf(stderr, "llama_logits: %s\n", message.c_str());
  std::exit(code);
}

int positive(std::string_view option, const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > 1'000'000) {
    die(2, std::string(option) + " needs a positive number, not '" + text + "'");
  }
  return static_cast<int>(value);
}

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (!arg.starts_with("--")) {
      plain.emplace_back(arg);
      continue;
    }
    if (i + 1 == argc) die(2, std::string(arg) + " needs a value");
    const char* text = argv[++i];
    const std::string_view value = text;
    if (arg == "--batch") {
      options.batch = positive(arg, text);
    } else if (arg == "--threads") {
      options.threads = positive(arg, text);
    } else if (arg == "--greedy") {
      options.greedy = positive(arg, text);
    } else if (arg == "--kv" && (value == "f16" || value == "f32")) {
      options.kv_type = value == "f16" ? GGML_TYPE_F16 : GGML_TYPE_F32;
    } else if (arg == "--flash" && (value == "auto" || value == "on" || value == "off")) {
      options.flash = value == "auto" ? LLAMA_FLASH_ATTN_TYPE_AUTO
                      : value == "on" ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                      : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    } else {
      die(2, "unknown option or value: " + std::string(arg) + " " + text);
    }
  }
  if (plain.size() != 3) die(2, "usage: llama_logits MODEL.gguf IDS OUT [options]; see the head of llama_logits.cc");
  options.model = plain[0];
  options.ids = plain[1];
  options.out = plain[2];
  return options;
}

std::vector<llama_token> read_ids(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) die(2, "cannot read " + path);
  const std::streamoff bytes = in.tellg();
  if (bytes == 0 || bytes % 4 != 0) die(2, path + " is not a list of int32");
  std::vector<llama_token> ids(static_cast<std::size_t>(bytes / 4));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(ids.data()), bytes);
  if (!in) die(2, "cannot read " + path);
  return ids;
}

template <typename T>
void write(std::ofstream& out, const T* values, std::size_t count) {
  out.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

llama_token argmax(const float* logits, int vocab) {
  return static_cast<llama_token>(std::max_element(logits, logits + vocab) - logits);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::vector<llama_token> ids = read_ids(options.ids);

  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  using Model = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
  using Context = std::unique_ptr<llama_context, decltype(&llama_free)>;

  Model model(llama_model_load_from_file(options.model.c_str(), llama_model_default_params()), llama_model_free);
  if (!model) die(2, "cannot load " + options.model);
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  for (const llama_token id : ids) {
    if (id < 0 || id >= vocab) die(2, options.ids + ": id " + std::to_string(id) + " is outside the vocabulary");
  }

  const int num_ids = static_cast<int>(ids.size());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(num_ids + options.greedy);
  params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(options.batch);
  params.n_threads = params.n_threads_batch = options.threads;
  params.type_k = params.type_v = options.kv_type;
  params.flash_attn_type = options.flash;
  Context context(llama_init_from_model(model.get(), params), llama_free);
  if (!context) die(1, "cannot make a context");

  std::ofstream out(options.out, std::ios::binary);
  if (!out) die(2, "cannot write " + options.out);

  const auto start = std::chrono::steady_clock::now();
  const bool all_logits = options.greedy == 0;
  llama_token next = 0;
  llama_batch batch = llama_batch_init(options.batch, 0, 1);
  for (int done = 0; done < num_ids; done += batch.n_tokens) {
    batch.n_tokens = std::min(options.batch, num_ids - done);
    for (int i = 0; i < batch.n_tokens; ++i) {
      batch.token[i] = ids[static_cast<std::size_t>(done + i)];
      batch.pos[i] = done + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = all_logits || done + i + 1 == num_ids;
    }
    if (llama_decode(context.get(), batch) != 0) die(1, "llama_decode failed");
    if (all_logits) {
      for (int i = 0; i < batch.n_tokens; ++i) {
        write(out, llama_get_logits_ith(context.get(), i), static_cast<std::size_t>(vocab));
      }
    }
  }
  if (!all_logits) {
    std::vector<llama_token> answer{argmax(llama_get_logits_ith(context.get(), -1), vocab)};
    while (static_cast<int>(answer.size()) < options.greedy) {
      next = answer.back();
      batch.n_tokens = 1;
      batch.token[0] = next;
      batch.pos[0] = num_ids + static_cast<int>(answer.size()) - 1;
      batch.n_seq_id[0] = 1;
      batch.seq_id[0][0] = 0;
      batch.logits[0] = 1;
      if (llama_decode(context.get(), batch) != 0) die(1, "llama_decode failed");
      answer.push_back(argmax(llama_get_logits_ith(context.get(), -1), vocab));
    }
    write(out, answer.data(), answer.size());
  }
  llama_batch_free(batch);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  out.close();
  if (!out) die(1, "cannot write " + options.out);
  std::printf("{\"num_ids\": %d, \"vocab\": %d, \"batch\": %d, \"threads\": %d, \"greedy\": %d, \"seconds\": %.3f}\n",
              num_ids, vocab, options.batch, options.threads, options.greedy, seconds);
  context.reset();
  model.reset();
  llama_backend_free();
  return 0;
}
