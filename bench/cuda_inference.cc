// B7 and B8 through the engine: one stream, and many at once, greedy, on a GPU. Prints one JSON object.
//
//   cuda_inference MODEL DEVICE ROWS PROMPT NEW [graphs|none] [repeats]
//
// Decode speed is counted from the step in which every request has its first token; each repeat is a run of its own, in
// one process, and the median is reported. The limit is the weights' bytes over the read bandwidth given by B0.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "engine/loaded_model.h"

namespace {

using namespace bz;
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
  double prefill_seconds, decode_seconds;
  size_t decode_tokens;
  int64_t steps;
};

Run run_once(engine::LoadedModel& model, int rows, int prompt, int new_tokens, uint64_t seed) {
  std::mt19937_64 rng(seed);
  engine::EngineCore& core = model.core();
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (int r = 0; r < rows; ++r) {
    engine::Request request;
    for (int i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<int32_t>(rng() % 40000 + 100));
    request.sampling.temperature = 0;
    request.max_tokens = new_tokens;
    request.ignore_eos = true;
    sinks.push_back(std::make_shared<CountingSink>());
    core.add(engine::RequestId(seed * 100000 + static_cast<uint64_t>(r) + 1), std::move(request), sinks.back());
  }
  const auto count = [&] {
    size_t n = 0;
    for (const auto& s : sinks) n += s->tokens;
    return n;
  };
  const auto all_started = [&] {
    return std::all_of(sinks.begin(), sinks.end(), [](auto& s) { return s->tokens > 0; });
  };
  const auto start = Clock::now();
  while (!all_started() && core.step()) {
  }
  const auto middle = Clock::now();
  const size_t before = count();
  const int64_t steps_before = core.stats().steps;
  while (core.step()) {
  }
  const auto end = Clock::now();
  for (const auto& s : sinks) BZ_CHECK(s->finished && !s->failed);
  return {std::chrono::duration<double>(middle - start).count(), std::chrono::duration<double>(end - middle).count(),
          count() - before, core.stats().steps - steps_before};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return std::fprintf(stderr, "cuda_inference MODEL DEVICE ROWS PROMPT NEW [full|none] [repeats]\n"), 2;
  const int rows = std::atoi(argv[3]), prompt = std::atoi(argv[4]), new_tokens = std::atoi(argv[5]);
  const bool graphs = argc < 7 || std::string_view(argv[6]) != "none";
  const int repeats = argc < 8 ? 5 : std::atoi(argv[7]);
  engine::LoadOptions o;
  o.model_path = argv[1];
  o.device.name = argv[2];
  o.graphs = graphs ? engine::GraphMode::kFull : engine::GraphMode::kNone;
  o.max_num_seqs = rows;
  o.max_num_batched_tokens = std::max(2048, rows);
  o.max_model_len = prompt + new_tokens + 1;
  o.kv_cache_bytes = int64_t{rows} * (prompt + new_tokens + 257) * 30 * 2 * 3 * 64 * 2 + (int64_t{64} << 20);
  const auto start = Clock::now();
  auto model =
      engine::LoadedModel::load(o, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.status().message().c_str()), model.status().exit_code();
  (*model)->core().warm_up();
  const double ready = std::chrono::duration<double>(Clock::now() - start).count();
  run_once(**model, rows, prompt, std::min(new_tokens, 8), 1);
  std::vector<double> rates, prefill, step_us;
  for (int i = 0; i < repeats; ++i) {
    const Run r = run_once(**model, rows, prompt, new_tokens, static_cast<uint64_t>(i) + 2);
    rates.push_back(static_cast<double>(r.decode_tokens) / r.decode_seconds);
    prefill.push_back(static_cast<double>(rows) * prompt / r.prefill_seconds);
    step_us.push_back(r.decode_seconds / static_cast<double>(r.steps) * 1e6);
  }
  for (auto* v : {&rates, &prefill, &step_us}) std::sort(v->begin(), v->end());
  const size_t m = rates.size() / 2;
  std::printf(
      "{\"rows\": %d, \"prompt\": %d, \"new\": %d, \"graphs\": \"%s\", \"decode_tok_s\": %.1f, \"min\": %.1f, \"max\": "
      "%.1f, \"step_us\": %.1f, \"prefill_tok_s\": %.0f, \"ready_s\": %.3f, \"null_block_clean\": %s}\n",
      rows, prompt, new_tokens, graphs ? "full" : "none", rates[m], rates.front(), rates.back(), step_us[m], prefill[m],
      ready, (*model)->core().stats().null_block_clean ? "true" : "false");
  return 0;
}
