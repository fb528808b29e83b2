#include "cli/bench_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace bz::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct CountingSink final : engine::Sink {
  void on_output(const engine::Output& o) override {
    tokens += o.tokens.size();
    if (o.finished) finished = true, failed = o.finished == engine::FinishReason::kError;
  }
  size_t tokens = 0;
  bool finished = false, failed = false;
};

struct Run {
  double prefill_seconds = 0, decode_seconds = 0;
  size_t decode_tokens = 0;
  int64_t steps = 0;
  device::StepTimes device;
  std::vector<double> host_us;  // of each step: how long the engine's thread was busy, not waiting
  double per_step_us(double seconds) const { return seconds / static_cast<double>(steps) * 1e6; }
};

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Workload {
 public:
  Workload(engine::LoadedModel& model, const BenchEngineOptions& options, uint64_t seed)
      : core_(model.core()),
        runner_(model.runner()),
        vocab_(static_cast<uint64_t>(model.model().vocab_size())),
        o_(options),
        rng_(seed),
        next_id_(seed << 32) {}

  engine::Request request(int new_tokens) {
    engine::Request request;
    for (int i = 0; i < o_.prompt; ++i) request.prompt.push_back(static_cast<int32_t>(rng_() % vocab_));
    request.sampling.temperature = 0;
    request.max_tokens = new_tokens;
    request.ignore_eos = true;
    return request;
  }
  // What clients do: it comes to the engine with the next step.
  void submit(int new_tokens) {
    sinks_.push_back(std::make_shared<CountingSink>());
    submitted_.push_back({request(new_tokens), sinks_.back()});
  }
  bool step() {
    for (auto& [request, sink] : submitted_) core_.add(engine::RequestId(++next_id_), std::move(request), sink);
    submitted_.clear();
    const bool more = core_.step();
    core_.capture_one();
    return more;
  }
  // Runs some of the engine's work and notes how long its thread was busy with it.
  template <class Work>
  bool measured(std::vector<double>& host_us, Work&& some) {
    const double waited = runner_.step_times().wait_seconds;
    const auto start = Clock::now();
    const bool more = some();
    host_us.push_back((since(start) - (runner_.step_times().wait_seconds - waited)) * 1e6);
    return more;
  }
  size_t tokens() const {
    size_t n = 0;
    for (const auto& s : sinks_) n += s->tokens;
    return n;
  }
  bool all_started() const {
    return std::all_of(sinks_.begin(), sinks_.end(), [](auto& s) { return s->tokens > 0; });
  }
  void check_finished() const {
    for (const auto& s : sinks_) BZ_CHECK(s->finished && !s->failed);
  }
  size_t num_unfinished() const {
    return static_cast<size_t>(core_.scheduler().num_running() + core_.scheduler().num_waiting());
  }
  uint64_t random() { return rng_(); }

 private:
  engine::EngineCore& core_;
  const engine::GraphRunner& runner_;
  uint64_t vocab_;
  const BenchEngineOptions& o_;
  std::mt19937_64 rng_;
  uint64_t next_id_;
  std::vector<std::shared_ptr<CountingSink>> sinks_;
  std::vector<std::pair<engine::Request, std::shared_ptr<CountingSink>>> submitted_;
};

// All requests at once, until every one has its tokens.
Run run_batch(engine::LoadedModel& model, const BenchEngineOptions& o, int new_tokens, uint64_t seed, bool measure) {
  Workload work(model, o, seed);
  for (int r = 0; r < o.rows; ++r) work.submit(new_tokens);
  Run run;
  auto start = Clock::now();
  while (!work.all_started() && work.step()) {
  }
  run.prefill_seconds = since(start);
  if (measure) model.runner().measure_steps();
  const size_t before = work.tokens();
  const int64_t steps_before = model.runner().stats().steps;
  start = Clock::now();
  while (work.measured(run.host_us, [&] { return work.step(); })) {
  }
  run.decode_seconds = since(start);
  work.check_finished();
  run.decode_tokens = work.tokens() - before;
  run.steps = model.runner().stats().steps - steps_before;
  if (measure) run.device = model.runner().step_times();
  return run;
}

// The batch stays full while requests end and others begin: `new_tokens` steps of it.
Run run_churn(engine::LoadedModel& model, const BenchEngineOptions& o, uint64_t seed, bool measure) {
  Workload work(model, o, seed);
  const auto mean_life = static_cast<uint64_t>(1 / o.churn);  // a request has 1 to longest_answer() new tokens
  const auto fill = [&] {
    for (size_t n = work.num_unfinished(); n < static_cast<size_t>(o.rows); ++n) {
      work.submit(static_cast<int>(1 + work.random() % (2 * mean_life - 1)));
    }
  };
  for (uint64_t i = 0; i < 3 * mean_life; ++i) fill(), work.step();  // lives overlap evenly, graphs are recorded
  if (measure) model.runner().measure_steps();
  Run run;
  const size_t before = work.tokens();
  const int64_t steps_before = model.runner().stats().steps;
  const auto start = Clock::now();
  for (int i = 0; i < o.new_tokens; ++i) fill(), work.measured(run.host_us, [&] { return work.step(); });
  run.decode_seconds = since(start);
  run.decode_tokens = work.tokens() - before;
  run.steps = model.runner().stats().steps - steps_before;
  if (measure) run.device = model.runner().step_times();
  while (work.step()) {
  }
  work.check_finished();
  return run;
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(std::lround(q * static_cast<double>(v.size() - 1)))];
}
double median(const std::vector<double>& v) { return quantile(v, 0.5); }

nlohmann::ordered_json measure(engine::LoadedModel& model, const BenchEngineOptions& o, double ready_seconds) {
  const auto run = [&](uint64_t seed, bool measured) {
    return o.churn > 0 ? run_churn(model, o, seed, measured) : run_batch(model, o, o.new_tokens, seed, measured);
  };
  run_batch(model, o, std::min(o.new_tokens, 8), 1, false);
  std::vector<double> rates, prefill, step_us, host_us;
  for (int i = 0; i < o.repeats; ++i) {
    const Run r = run(static_cast<uint64_t>(i) + 2, false);
    rates.push_back(static_cast<double>(r.decode_tokens) / r.decode_seconds);
    prefill.push_back(r.prefill_seconds > 0 ? 1.0 * o.rows * o.prompt / r.prefill_seconds : 0);
    step_us.push_back(r.per_step_us(r.decode_seconds));
    host_us.insert(host_us.end(), r.host_us.begin(), r.host_us.end());
  }
  const engine::EngineStats stats = model.core().stats();
  nlohmann::ordered_json j = {
      {"model", model.plan().name},
      {"device", model.device().description()},
      {"ops", model.isa()},
      {"rows", o.rows},
      {"prompt", o.prompt},
      {"new", o.new_tokens},
      {"churn", o.churn},
      {"graphs", engine::graph_mode_name(model.runner().config().mode)},
      {"decode_tok_s", median(rates)},
      {"decode_tok_s_min", *std::min_element(rates.begin(), rates.end())},
      {"decode_tok_s_max", *std::max_element(rates.begin(), rates.end())},
      {"step_us", median(step_us)},
      {"weight_bytes", model.model().weight_bytes()},
      {"weights_gb_s", static_cast<double>(model.model().weight_bytes()) / median(step_us) * 1e-3},
      {"prefill_tok_s", median(prefill)},
      {"ready_s", ready_seconds},
      {"graphs_recorded", model.runner().stats().captures},
      {"steps", stats.steps},
      {"steps_without_graph", stats.steps_without_graph},
      {"null_block_clean", stats.null_block_clean},
  };
  // Events around every step cost the host microseconds: a run of their own.
  const Run measured = run(1000, true);
  if (const device::StepTimes& d = measured.device; d.steps > 0) {
    j["host_us"] = std::accumulate(host_us.begin(), host_us.end(), 0.0) / static_cast<double>(host_us.size());
    j["host_us_median"] = median(host_us);
    j["host_us_p99"] = quantile(host_us, 0.99);
    j["device_busy_us"] = measured.per_step_us(d.busy_seconds);
    j["device_idle"] = d.idle_seconds / (d.idle_seconds + d.busy_seconds);
  }
  return j;
}

void print(const nlohmann::ordered_json& j) {
  const auto number = [&](const char* key) { return j.at(key).get<double>(); };
  std::printf("decode, %d at once: %.1f tok/s (%.1f to %.1f), %.1f us a step; weights at %.1f GB/s\n",
              j.at("rows").get<int>(), number("decode_tok_s"), number("decode_tok_s_min"), number("decode_tok_s_max"),
              number("step_us"), number("weights_gb_s"));
  if (number("prefill_tok_s") > 0) std::printf("prefill: %.0f tok/s\n", number("prefill_tok_s"));
  if (j.contains("host_us")) {
    std::printf(
        "a step takes the device %.1f us and the host %.1f us (median %.1f, p99 %.1f); the device idles %.2f %%\n",
        number("device_busy_us"), number("host_us"), number("host_us_median"), number("host_us_p99"),
        100 * number("device_idle"));
  }
  std::printf("ready after %.2f s; null block %s\n", number("ready_s"),
              j.at("null_block_clean").get<bool>() ? "clean" : "NOT ZERO");
}

// New tokens that a request may have.
int longest_answer(const BenchEngineOptions& o) { return o.churn > 0 ? static_cast<int>(2 / o.churn) : o.new_tokens; }

constexpr int kMostOfAnything = 1'000'000;

Status check(const BenchEngineOptions& o) {
  const auto in_range = [](const char* option, int value, int least) {
    return value >= least && value <= kMostOfAnything
               ? ok_status()
               : invalid_argument("{} {}: must be between {} and {}", option, value, least, kMostOfAnything);
  };
  BZ_TRY(in_range("--rows", o.rows, 1));
  BZ_TRY(in_range("--prompt", o.prompt, 1));
  BZ_TRY(in_range("--new", o.new_tokens, o.churn > 0 ? 1 : 2));  // decode speed counts from the first token
  BZ_TRY(in_range("--repeats", o.repeats, 1));
  if (o.churn != 0 && !(o.churn >= 1e-5 && o.churn <= 0.5))
    return invalid_argument("--churn {}: must be 0, or between 0.00001 and 0.5", o.churn);
  return ok_status();
}

}  // namespace

void add_bench_engine_options(CLI::App& command, BenchEngineOptions& o) {
  command.add_option("model", o.engine.load.model_path, "a .gguf file; with --random a config.json (or its folder)")
      ->required();
  command.add_flag("--random", o.engine.load.random_weights,
                   "random bf16 weights in the shape that a Hugging Face config.json describes");
  command.add_option("--rows", o.rows, "requests at once")->capture_default_str();
  command.add_option("--prompt", o.prompt, "tokens of a prompt")->capture_default_str();
  command.add_option("--new", o.new_tokens, "new tokens of a request; with --churn: steps")->capture_default_str();
  command.add_option("--churn", o.churn, "part of the requests that end in a step, while as many begin")
      ->capture_default_str();
  command.add_option("--repeats", o.repeats, "runs; the median is printed")->capture_default_str();
  command.add_flag("--json", o.json, "print one JSON object");
  add_engine_options(command, o.engine);
}

Status bench_engine(const BenchEngineOptions& o) {
  BZ_TRY(check(o));
  BZ_ASSIGN(engine::LoadOptions load, to_load_options(o.engine));
  if (load.max_num_seqs == 0) load.max_num_seqs = o.rows;
  if (load.max_num_batched_tokens == 0) load.max_num_batched_tokens = std::max(2048, o.rows);
  if (load.max_model_len == 0) load.max_model_len = o.prompt + longest_answer(o) + 1;
  load.prefix_caching = false;
  const auto say = [](const std::string& line) { log::info("{}", line); };
  const auto start = Clock::now();
  BZ_ASSIGN(const auto model, engine::LoadedModel::load(load, say));
  BZ_TRY(model->core().check(Workload(*model, o, 1).request(longest_answer(o))));
  BZ_TRY(model->warm_up(say));
  const double ready_seconds = since(start);
  while (model->core().capture_one()) {
  }
  model->core().use_pipeline();
  const nlohmann::ordered_json j = measure(*model, o, ready_seconds);
  if (o.json) {
    std::printf("%s\n", j.dump().c_str());
  } else {
    print(j);
  }
  return ok_status();
}

}  // namespace bz::cli
