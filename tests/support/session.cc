#include "support/session.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <random>
#include <utility>

namespace bz::test {
namespace {

// Ids differ between the sessions of one engine.
std::atomic<uint64_t> g_next_id{1};

uint64_t hash_bits(const std::vector<float>& values) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const float v : values) h = std::rotl((h ^ std::bit_cast<uint32_t>(v)) * 0xff51afd7ed558ccdu, 29);
  return h;
}

}  // namespace

std::string first_difference(const Trace& expected, const Trace& actual) {
  if (expected.size() != actual.size()) return fmt::format("{} requests, not {}", actual.size(), expected.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    const auto& want = expected[r];
    const auto& got = actual[r];
    for (size_t i = 0; i < std::max(want.size(), got.size()); ++i) {
      if (i >= got.size()) return fmt::format("request {} has {} outputs, not {}", r, got.size(), want.size());
      if (i >= want.size()) return fmt::format("request {} has {} outputs, not {}", r, got.size(), want.size());
      if (want[i] == got[i]) continue;
      return fmt::format("request {}, output {}: token {} from logits {:016x}, not token {} from logits {:016x}", r, i,
                         got[i].token, got[i].logits_hash, want[i].token, want[i].logits_hash);
    }
  }
  return {};
}

void Session::Sink::on_output(const engine::Output& output) {
  tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  if (output.finished) finished = output.finished;
}

Session::Session(engine::LoadedModel& model) : model_(model), first_id_(g_next_id) {
  logits_.resize(static_cast<size_t>(model.model().vocab_size()));
  core().set_observer(
      [this](const engine::StepPlan& plan, const engine::StepResult& result) { observe(plan, result); });
}

Session::~Session() {
  core().set_observer({});
  core().finish_all(engine::FinishReason::kCancelled);
}

size_t Session::submit(engine::Request request) {
  const Status status = core().check(request);
  BZ_CHECK_MSG(status.ok(), "{}", status.message());
  sinks_.push_back(std::make_shared<Sink>());
  trace_.emplace_back();
  core().add(engine::RequestId(g_next_id++), std::move(request), sinks_.back());
  return sinks_.size() - 1;
}

void Session::cancel(size_t index) { core().cancel(engine::RequestId(first_id_ + index)); }

void Session::finish_all_work() {
  while (step()) {
  }
}

void Session::observe(const engine::StepPlan& plan, const engine::StepResult& result) {
  const ops::TensorRef logits = core().runner().logits(result.key);
  for (size_t b = 0; b < plan.rows.size() && b < result.rows.size(); ++b) {
    if (!plan.rows[b].sample) continue;
    model_.device().copy_to_host(logits_.data(), logits.row<float>(static_cast<int64_t>(b)),
                                 logits_.size() * sizeof(float));
    trace_[plan.rows[b].request.value() - first_id_].push_back({result.rows[b].token, hash_bits(logits_)});
  }
}

Trace run_requests(engine::LoadedModel& model, const std::vector<engine::Request>& requests, const RunStyle& style) {
  Session session(model);
  session.core().set_min_rows(style.min_rows);
  const int32_t max_rows = model.runner().config().limits.max_rows;
  size_t submitted = 0;
  int32_t steps = 0;
  const auto in_engine = [&] {
    return static_cast<size_t>(session.core().scheduler().num_running() + session.core().scheduler().num_waiting());
  };
  do {
    while (submitted < requests.size() && in_engine() < style.at_once) session.submit(requests[submitted++]);
    session.step();
    if (style.dummy_between) session.core().dummy_step(1 + steps % max_rows, steps % 3 * 16);
    ++steps;
  } while (session.core().has_work() || submitted < requests.size());
  session.core().set_min_rows(0);
  return session.trace();
}

std::vector<engine::Request> mixed_requests(size_t count, int32_t max_prompt, int32_t max_tokens, int32_t vocab_size,
                                            uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int32_t from, int32_t to) {  // inclusive
    return from + static_cast<int32_t>(random() % static_cast<uint64_t>(to - from + 1));
  };
  std::vector<engine::Request> requests(count);
  for (size_t i = 0; i < count; ++i) {
    engine::Request& r = requests[i];
    r.prompt.resize(static_cast<size_t>(pick(1, max_prompt)));
    for (int32_t& id : r.prompt) id = pick(0, vocab_size - 1);
    r.max_tokens = pick(2, max_tokens);
    r.ignore_eos = true;
    r.sampling.temperature = i % 3 == 2 ? 0.9f : 0.0f;
    r.sampling.top_p = i % 2 == 0 ? 0.8f : 1.0f;
    r.sampling.top_k = i % 4 == 1 ? 20 : 0;
    r.sampling.seed = 100 + i;
  }
  return requests;
}

}  // namespace bz::test
