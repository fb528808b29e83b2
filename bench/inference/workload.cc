#include "inference/workload.h"

#include <chrono>
#include <random>
#include <string_view>

#include "base/check.h"

namespace bz::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class CountingSink final : public engine::Sink {
 public:
  void on_output(const engine::Output& output) override {
    num_tokens += static_cast<int32_t>(output.tokens.size());
    finished = finished || output.finished.has_value();
    BZ_CHECK_MSG(output.error.empty(), "{}", output.error);
  }
  int32_t num_tokens = 0;
  bool finished = false;
};

// Random ids, like the peer's: speed does not depend on them, and no prompt is cached.
std::vector<int32_t> random_prompt(int32_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 32000);
  return ids;
}

std::shared_ptr<CountingSink> submit(engine::EngineCore& core, int32_t prompt, int32_t max_tokens) {
  static uint64_t next_id = 1;
  engine::Request request;
  request.prompt = random_prompt(prompt, static_cast<uint32_t>(next_id));
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  const Status status = core.check(request);
  BZ_CHECK_MSG(status.ok(), "{}", status.message());
  auto sink = std::make_shared<CountingSink>();
  core.add(engine::RequestId(next_id++), std::move(request), sink);
  return sink;
}

// Runs a step; adds it to the measurement if counted() says so afterwards.
template <class Counted>
bool timed_step(const Bench& bench, Measurement& m, Counted&& counted) {
  if (bench.probe != nullptr) bench.probe->begin_step();
  const auto start = Clock::now();
  bench.core.step();
  const double seconds = seconds_since(start);
  const bool counts = counted();
  if (bench.probe != nullptr) bench.probe->end_step(counts);
  if (!counts) return false;
  m.seconds += seconds;
  ++m.steps;
  return true;
}

bool always() { return true; }

void drain(engine::EngineCore& core) {
  while (core.has_work()) core.step();
}

// Of one token at a position: it attends to itself and to everything before.
double token_ops(const ModelWork& w, int64_t position) {
  return w.layer_ops + w.attention_ops * static_cast<double>(position + 1);
}

// A step's decoding rows, each with `context` tokens in the cache already.
void add_decode_step(Measurement& m, const ModelWork& w, int32_t rows, int64_t context) {
  m.tokens += rows;
  m.bytes += static_cast<double>(w.weight_bytes) + static_cast<double>(rows * context * w.kv_token_bytes);
  m.ops += rows * (token_ops(w, context) + w.logits_ops);
}

}  // namespace

ModelWork model_work(const engine::LoadedModel& model) {
  const models::ModelConfig& c = model.plan().config;
  ModelWork w;
  w.weight_bytes = model.model().weight_bytes();
  w.kv_token_bytes = row_bytes(*model.plan().options.kv_dtype, int64_t{2} * c.num_layers * c.num_kv_heads * c.head_dim);
  for (const formats::GgufTensor& t : model.file().tensors()) {
    if (t.name.starts_with("blk.") && t.num_dims == 2) w.layer_ops += 2.0 * static_cast<double>(t.num_elements());
  }
  w.logits_ops = 2.0 * c.vocab_size * c.hidden_size;
  w.attention_ops = 4.0 * c.num_layers * c.num_heads * c.head_dim;
  return w;
}

Measurement decode_alone(const Bench& bench, int32_t tokens) {
  Measurement m;
  const auto sink = submit(bench.core, 1, tokens);
  while (!sink->finished) timed_step(bench, m, always);
  for (int32_t i = 0; i < tokens; ++i) add_decode_step(m, bench.work, 1, i);
  drain(bench.core);
  return m;
}

Measurement prefill(const Bench& bench, int32_t prompt) {
  Measurement m;
  const auto sink = submit(bench.core, prompt, 1);
  while (!sink->finished) timed_step(bench, m, always);
  m.tokens = prompt;
  m.bytes = static_cast<double>(m.steps * bench.work.weight_bytes);
  m.ops = bench.work.logits_ops;
  for (int32_t i = 0; i < prompt; ++i) m.ops += token_ops(bench.work, i);
  drain(bench.core);
  return m;
}

Measurement decode_batch(const Bench& bench, int32_t rows, int32_t prompt, int32_t tokens) {
  // Early requests decode while later prompts are computed: they need that many tokens more.
  const int32_t prompts_a_step = std::max(1, kMaxBatchedTokens / prompt);
  const int32_t surplus = (rows + prompts_a_step - 1) / prompts_a_step + 1;
  std::vector<std::shared_ptr<CountingSink>> sinks;
  for (int32_t i = 0; i < rows; ++i) sinks.push_back(submit(bench.core, prompt, tokens + surplus));
  bool all_decode = false;
  bench.core.set_observer([&](const engine::StepPlan& plan, const engine::StepResult&) {
    all_decode = static_cast<int32_t>(plan.rows.size()) == rows && static_cast<int32_t>(plan.tokens.size()) == rows;
  });
  Measurement m;
  while (m.steps < tokens) {
    BZ_CHECK_MSG(bench.core.has_work(), "the requests ended before {} steps of {} rows", tokens, rows);
    // The oldest requests are a few tokens ahead: the limit counts every row as the youngest, which is less work.
    if (timed_step(bench, m, [&] { return all_decode; })) add_decode_step(m, bench.work, rows, prompt + m.steps - 1);
  }
  bench.core.set_observer({});
  drain(bench.core);
  return m;
}

Measurement first_token(const Bench& bench, int32_t prompt) {
  Measurement m = prefill(bench, prompt);
  m.tokens = 1;
  return m;
}

std::vector<Workload> all_workloads() {
  return {
      {"tg128", [](const Bench& b) { return decode_alone(b, 128); }},
      {"pp512", [](const Bench& b) { return prefill(b, 512); }},
      {"tg64_d4096", [](const Bench& b) { return decode_batch(b, 1, 4096, 64); }},
      {"batch8", [](const Bench& b) { return decode_batch(b, 8, 128, 64); }},
      {"batch32", [](const Bench& b) { return decode_batch(b, 32, 128, 64); }},
      {"first8", [](const Bench& b) { return first_token(b, 8); }},
  };
}

}  // namespace bz::bench
