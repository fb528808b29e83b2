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

uint64_t add_hash(uint64_t h, uint32_t bits) { return std::rotl((h ^ bits) * 0xff51afd7ed558ccdu, 29); }

uint64_t hash_bits(const std::vector<float>& values) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const float v : values) h = add_hash(h, std::bit_cast<uint32_t>(v));
  return h;
}

uint64_t hash_logprobs(const ops::LogprobResult& r) {
  uint64_t h = add_hash(add_hash(static_cast<uint64_t>(r.rank), static_cast<uint32_t>(r.token)),
                        std::bit_cast<uint32_t>(r.logprob));
  for (int32_t i = 0; i < r.num_top; ++i) {
    h = add_hash(add_hash(h, static_cast<uint32_t>(r.top_tokens[i])), std::bit_cast<uint32_t>(r.top_logprobs[i]));
  }
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
      return fmt::format(
          "request {}, output {}: token {} from logits {:016x} (log probabilities {:016x}), not token {} from logits "
          "{:016x} ({:016x})",
          r, i, got[i].token, got[i].logits_hash, got[i].logprobs_hash, want[i].token, want[i].logits_hash,
          want[i].logprobs_hash);
    }
  }
  return {};
}

void Session::Sink::on_output(const engine::Output& output) {
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(tokens, output.tokens);
  append(logprobs, output.logprobs);
  append(prompt_logprobs, output.prompt_logprobs);
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

namespace {

// Each choice's outputs go to its own sink.
struct ChoiceSink final : engine::Sink {
  void on_output(const engine::Output& output) override {
    sinks[static_cast<size_t>(output.choice)]->on_output(output);
  }
  std::vector<std::shared_ptr<engine::Sink>> sinks;
};

}  // namespace

size_t Session::submit(engine::Request request) {
  const Status status = core().check(request);
  BZ_CHECK_MSG(status.ok(), "{}", status.message());
  const size_t first = sinks_.size();
  const auto num_choices = static_cast<size_t>(request.num_choices);
  auto sink = std::make_shared<ChoiceSink>();
  for (size_t c = 0; c < num_choices; ++c) {
    sinks_.push_back(std::make_shared<Sink>());
    sink->sinks.push_back(sinks_.back());
  }
  trace_.resize(sinks_.size());
  core().add(engine::RequestId(g_next_id.fetch_add(num_choices)), std::move(request), std::move(sink));
  return first;
}

void Session::cancel(size_t index) { core().cancel(engine::RequestId(first_id_ + index)); }

void Session::finish_all_work() {
  while (step()) {
  }
}

void Session::observe(const engine::StepPlan& plan, const engine::StepResult& result) {
  const ops::TensorRef logits = core().runner().logits(result.key);
  const ops::StepView view = core().runner().view(result.key);
  std::vector<int32_t> logits_start(static_cast<size_t>(view.padded_rows) + 1);
  model_.device().copy_to_host(logits_start.data(), view.logits_start, logits_start.size() * sizeof(int32_t));
  const auto per_row = static_cast<size_t>(view.samples_per_row);
  for (size_t b = 0; b < plan.rows.size() && b * per_row < result.rows.size(); ++b) {
    // A row that decodes without drafts has one sample; prompt logprobs are other logits rows before it.
    const bool drafts = plan.rows[b].num_samples > 1;
    const int32_t first_logits = drafts ? logits_start[b] : logits_start[b + 1] - 1;
    for (int32_t i = 0; i < plan.rows[b].num_samples; ++i) {
      const int32_t token = result.rows[b * per_row + static_cast<size_t>(i)].token;
      if (token == ops::kTokenNone || token == ops::kTokenRejected) break;
      const int32_t l = first_logits + i;
      model_.device().copy_to_host(logits_.data(), logits.row<float>(l), logits_.size() * sizeof(float));
      Sampled sampled{token, hash_bits(logits_), 0};
      if (plan.rows[b].sampling.num_top_logprobs >= 0) {
        sampled.logprobs_hash = hash_logprobs(result.logprobs[static_cast<size_t>(l)]);
      }
      trace_[plan.rows[b].request.value() - first_id_].push_back(sampled);
    }
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

void ask_for_everything(std::vector<engine::Request>& requests, int32_t vocab_size) {
  for (size_t i = 0; i < requests.size(); ++i) {
    engine::Request& r = requests[i];
    const auto id = [&](size_t n) { return static_cast<int32_t>((i * 31 + n * 7) % static_cast<size_t>(vocab_size)); };
    if (i % 2 == 0) r.sampling.repetition_penalty = 1.0f + 0.1f * static_cast<float>(i % 7);
    if (i % 3 != 0) r.sampling.frequency_penalty = 0.2f * static_cast<float>(i % 5) - 0.3f;
    if (i % 5 != 0) r.sampling.presence_penalty = 0.25f;
    if (i % 4 == 1) r.sampling.logit_bias = {{id(0), 3.0f}, {id(1), -5.0f}, {id(2), 100.0f}};
    if (i % 4 == 2) {
      r.stop_token_ids = {id(3), id(4)};
      r.sampling.logit_bias = {{id(3), 100.0f}};
      r.min_tokens = r.max_tokens / 2;
    }
    if (i % 3 == 1) r.logprobs = static_cast<int32_t>(i % 6);
    if (i % 5 == 2) r.logprobs = r.prompt_logprobs = 2;
  }
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
