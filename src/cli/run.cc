#include "cli/run.h"

#include <sys/resource.h>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "engine/text_stream.h"
#include "formats/chat_template.h"

namespace bz::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Prints text as it comes, and remembers when.
class StreamSink final : public engine::Sink {
 public:
  StreamSink(const formats::Tokenizer& tokenizer, bool print) : text_(tokenizer, {}), print_(print) {}

  void on_output(const engine::Output& output) override {
    std::string delta;
    text_.push(output.tokens, delta);
    num_tokens += output.tokens.size();
    if (!output.tokens.empty() && num_tokens == output.tokens.size()) first_token = Clock::now();
    if (output.finished) {
      text_.finish(delta);
      finished = output.finished;
      error = output.error;
    }
    all_text += delta;
    if (print_ && !delta.empty()) {
      std::fwrite(delta.data(), 1, delta.size(), stdout);
      std::fflush(stdout);
    }
  }

  size_t num_tokens = 0;
  Clock::time_point first_token = {};
  std::string all_text;
  std::optional<engine::FinishReason> finished;
  std::string error;

 private:
  engine::TextStream text_;
  bool print_;
};

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Seconds this process had run when it was asked the first time: from its start in /proc, so that loading counts.
double process_age() {
  std::ifstream stat("/proc/self/stat");
  std::ifstream uptime("/proc/uptime");
  std::string text;
  double up = 0;
  if (!std::getline(stat, text) || !(uptime >> up)) return 0;
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // field 22 of proc(5): start time in clock ticks
  return up - std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int64_t peak_memory_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

Result<std::vector<int32_t>> prompt_tokens(const RunOptions& o, const engine::LoadedModel& model) {
  if (!o.chat) return model.tokenizer().encode(o.prompt, {});
  BZ_ASSIGN(const std::string_view source, model.file().get_string("tokenizer.chat_template"));
  BZ_ASSIGN(const formats::ChatTemplate chat, formats::ChatTemplate::parse(std::string(source)));
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!o.system.empty()) messages.push_back({{"role", "system"}, {"content", o.system}});
  messages.push_back({{"role", "user"}, {"content", o.prompt}});
  BZ_ASSIGN(const std::string text, chat.render(messages, {}));
  return model.tokenizer().encode(text, {.parse_special = true, .add_bos = false});
}

struct Report {
  size_t prompt_tokens;
  double prefill_seconds, decode_seconds, first_token_seconds;
};

void print_summary(const Report& r, const StreamSink& sink, const engine::EngineStats& stats) {
  const double decode = sink.num_tokens > 1 ? static_cast<double>(sink.num_tokens - 1) / r.decode_seconds : 0;
  log::info(
      "{} prompt tokens at {:.1f} tok/s, {} new at {:.1f} tok/s; first token {:.2f} s after start; memory {} MB; null "
      "block {}",
      r.prompt_tokens, static_cast<double>(r.prompt_tokens) / r.prefill_seconds, sink.num_tokens, decode,
      r.first_token_seconds, peak_memory_bytes() / 1000000, stats.null_block_clean ? "clean" : "NOT ZERO");
}

void print_json(const Report& r, const StreamSink& sink, const engine::EngineStats& stats) {
  const nlohmann::ordered_json j = {
      {"text", sink.all_text},
      {"finish_reason", engine::finish_reason_name(*sink.finished)},
      {"prompt_tokens", r.prompt_tokens},
      {"completion_tokens", sink.num_tokens},
      {"prefill_seconds", r.prefill_seconds},
      {"decode_seconds", r.decode_seconds},
      {"first_token_seconds", r.first_token_seconds},
      {"peak_memory_bytes", peak_memory_bytes()},
      {"null_block_clean", stats.null_block_clean},
  };
  std::printf("%s\n", j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& o) {
  command.add_option("model", o.engine.load.model_path, "a .gguf file")->required();
  command.add_option("-p,--prompt", o.prompt, "the prompt")->required();
  command.add_option("-n,--max-tokens", o.max_tokens, "most new tokens")->capture_default_str();
  CLI::Option* chat = command.add_flag("--chat", o.chat, "wrap the prompt in the model's chat template");
  command.add_option("--system", o.system, "with --chat: the system message")->needs(chat);
  command.add_option("--temp,--temperature", o.temperature, "0: greedy")->capture_default_str();
  command.add_option("--top-p", o.top_p, "nucleus sampling, in (0, 1]")->capture_default_str();
  command.add_option("--top-k", o.top_k, "0: off")->capture_default_str();
  command.add_option("--min-p", o.min_p, "in [0, 1)")->capture_default_str();
  command.add_option("--seed", o.seed, "of the random numbers")->capture_default_str()->check(seed_range());
  command.add_flag("--ignore-eos", o.ignore_eos, "do not stop at an end token");
  command.add_flag("--json", o.json, "print one JSON object instead of text");
  add_engine_options(command, o.engine);
}

Status run(const RunOptions& o) {
  BZ_ASSIGN(engine::LoadOptions load, to_load_options(o.engine));
  if (load.max_num_seqs == 0) load.max_num_seqs = 1;
  const Clock::time_point start = Clock::now();
  const double age_at_start = process_age();
  BZ_ASSIGN(const auto model, engine::LoadedModel::load(load, [&](const std::string& line) {
              if (!o.json) log::info("{}", line);
            }));
  engine::Request request;
  BZ_ASSIGN(request.prompt, prompt_tokens(o, *model));
  request.sampling = {o.temperature, o.top_p, o.top_k, o.min_p, o.seed};
  request.max_tokens = o.max_tokens;
  request.ignore_eos = o.ignore_eos;
  engine::EngineCore& core = model->core();
  core.use_pipeline();
  BZ_TRY(core.check(request));
  Report report{};
  report.prompt_tokens = request.prompt.size();

  auto sink = std::make_shared<StreamSink>(model->tokenizer(), !o.json);
  const Clock::time_point submitted = Clock::now();
  core.add(engine::RequestId(uint64_t{1}), std::move(request), sink);
  while (!sink->finished && core.step()) {
  }
  const Clock::time_point end = Clock::now();
  if (!sink->finished || sink->finished == engine::FinishReason::kError) return internal_error("{}", sink->error);
  const Clock::time_point first = sink->num_tokens > 0 ? sink->first_token : end;
  report.prefill_seconds = seconds(first - submitted);
  report.decode_seconds = seconds(end - first);
  report.first_token_seconds = age_at_start + seconds(first - start);
  if (o.json) {
    print_json(report, *sink, core.stats());
  } else {
    std::printf("\n");
    std::fflush(stdout);  // before the summary, where both go to one file
    print_summary(report, *sink, core.stats());
  }
  return ok_status();
}

}  // namespace bz::cli
