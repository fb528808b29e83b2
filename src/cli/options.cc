#include "cli/options.h"

#include <charconv>

namespace bz::cli {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 50;

Status unknown_value(const char* option, const std::string& value, const char* choices) {
  return invalid_argument("{} {}: use {}", option, value, choices);
}

Result<engine::GraphMode> parse_graphs(const std::string& s) {
  using enum engine::GraphMode;
  for (const engine::GraphMode mode : {kNone, kPiecewise, kFull, kAuto}) {
    if (s == engine::graph_mode_name(mode)) return mode;
  }
  return unknown_value("--graphs", s, "none, piecewise, full or auto");
}

Result<device::NullGuard> parse_null_guard(const std::string& s) {
  if (s == "read-only") return device::NullGuard::kReadOnly;
  if (s == "hard") return device::NullGuard::kHard;
  if (s == "off") return device::NullGuard::kOff;
  return unknown_value("--null-guard", s, "read-only, hard or off");
}

Result<std::optional<DType>> parse_kv_dtype(const std::string& s) {
  if (s == "auto") return std::optional<DType>();
  if (s == "f16") return std::optional(DType::kF16);
  if (s == "bf16") return std::optional(DType::kBF16);
  if (s == "f32") return std::optional(DType::kF32);
  return unknown_value("--kv-cache-dtype", s, "auto, f16, bf16 or f32");
}

// "ngram:4" -> 4 drafts a step.
Result<int32_t> parse_speculative(const std::string& s) {
  constexpr std::string_view kNgram = "ngram:";
  int32_t drafts = 0;
  const char* end = s.data() + s.size();
  const bool known = s.starts_with(kNgram);
  const auto [stop, error] = std::from_chars(s.data() + (known ? kNgram.size() : 0), end, drafts);
  if (!known || error != std::errc() || stop != end || drafts < 1 || drafts > ops::kMaxDraftTokens) {
    return invalid_argument("--speculative {}: use ngram:K with K from 1 to {}", s, ops::kMaxDraftTokens);
  }
  return drafts;
}

}  // namespace

Result<int64_t> parse_bytes(const std::string& option, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (error != std::errc() || shift < 0 || value < 1 || value > (kMaxBytes >> shift)) {
    return invalid_argument("{} {}: use a number of bytes, or one with K, M or G (512M)", option, text);
  }
  return value << shift;
}

CLI::Validator real_range(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    const bool inside = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return inside ? std::string() : fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{} - {}]", least, most)};
}

CLI::Validator seed_range() {
  const auto check = [](const std::string& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return std::string();
    return fmt::format("{} is not a whole number from 0 to {}", text, UINT64_MAX);
  };
  return {check, "", "seed"};
}

CLI::Validator not_empty() {
  const auto check = [](const std::string& text) {
    return text.empty() ? std::string("is empty; leave the option out or give it a value") : std::string();
  };
  return {check, ""};
}

void add_engine_options(CLI::App& command, EngineOptions& o) {
  command
      .add_option(
          "--device", o.load.device.name,
          "where to run: cpu, cuda:N, or null (computes nothing and makes tokens up: to test and time the rest)")
      ->capture_default_str();
  command.add_option("--threads", o.load.device.num_threads, "CPU threads; 0: one per core")->capture_default_str();
  command
      .add_option(
          "--graphs", o.graphs,
          "none: run ops one by one; full: record and replay; piecewise: likewise, attention apart; auto: full, "
          "on CUDA of a mixed step only when its size comes up again")
      ->capture_default_str();
  command.add_option("--null-guard", o.null_guard, "block 0: read-only, hard (not even readable) or off")
      ->capture_default_str();
  command.add_option("--kv-cache-dtype", o.kv_dtype, "f16, bf16, f32, or auto: f16 on the CPU, bf16 on CUDA")
      ->capture_default_str();
  command.add_option("--kv-cache-bytes", o.kv_cache_bytes,
                     "size of the cache, for example 512M; default: on CUDA 0.9 of what is free beside the weights, at "
                     "most what --max-num-seqs requests of --max-model-len need; else and of plan 512M, of plan with a "
                     "config.json 64G");
  command.add_option("--block-size", o.load.block_size, "tokens in a block; default: pages of at least 32 KiB");
  command.add_option("--max-num-seqs", o.load.max_num_seqs,
                     "most requests in one step; default 32, of run 1, of bench engine --rows");
  command.add_option("--max-num-batched-tokens", o.load.max_num_batched_tokens,
                     "most tokens in one step; default 512, of bench engine 2048; --max-num-seqs if that is more");
  command.add_option("--max-model-len", o.load.max_model_len,
                     "most tokens of a request; default: the model's context, of bench engine what its requests need");
  command.add_option("--served-model-name", o.load.served_model_name,
                     "default: the file's general.basename, else its stem");
  command.add_option("--speculative", o.speculative,
                     "ngram:K: guess up to K tokens a step from what the text said before, and verify them; the answer "
                     "stays the same (on CUDA with --batch-invariant)");
  command.add_flag("--batch-invariant", o.load.batch_invariant,
                   "CUDA: no bit of an answer depends on its batch mates (slower); the CPU is so anyway");
  command.add_flag_callback(
      "--no-prefix-caching", [&o] { o.load.prefix_caching = false; }, "compute every prompt from its first token");
  command.add_flag("--kv-sanitize", o.load.kv_sanitize, "check every slot of every step and poison free blocks (slow)");
}

Result<engine::LoadOptions> to_load_options(const EngineOptions& options) {
  engine::LoadOptions load = options.load;
  BZ_ASSIGN(load.graphs, parse_graphs(options.graphs));
  BZ_ASSIGN(load.null_guard, parse_null_guard(options.null_guard));
  BZ_ASSIGN(load.kv_dtype, parse_kv_dtype(options.kv_dtype));
  if (!options.speculative.empty()) {
    BZ_ASSIGN(load.num_draft_tokens, parse_speculative(options.speculative));
  }
  if (!options.kv_cache_bytes.empty()) {
    BZ_ASSIGN(load.kv_cache_bytes, parse_bytes("--kv-cache-bytes", options.kv_cache_bytes));
  }
  return load;
}

}  // namespace bz::cli
