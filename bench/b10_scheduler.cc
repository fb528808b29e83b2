// B10, the engine's part: what the scheduler does in one decode step of 256 requests, on the CPU.
//
//   plan     schedule() and the cache plan: which rows run, their tokens and table changes; us per step; goal 25 us
//   results  process(): tokens appended, ends looked for, outputs delivered; us per step
//
// with one cache group (full) and three (full, sliding window, state). Heap allocations are counted and must be 0
// (ENG-3).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/scheduler.h"
#include "heap_count.h"

namespace bz {
namespace {

constexpr int kRounds = 9;
constexpr int32_t kRequests = 256;
constexpr int32_t kPrompt = 64;
constexpr int32_t kOutputs = 1024;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kToken = 5;
constexpr double kGoal = 25;

struct NoSink final : engine::Sink {
  void on_output(const engine::Output& output) override { num_tokens += output.tokens.size(); }
  size_t num_tokens = 0;
};

engine::SchedulerConfig scheduler_config() {
  engine::SchedulerConfig config;
  config.max_num_seqs = kRequests;
  config.max_num_batched_tokens = kRequests * kPrompt;
  config.max_model_len = kPrompt + kOutputs;
  return config;
}

kv::CacheConfig cache_config(bool three_groups) {
  kv::CacheConfig config;
  config.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
  if (three_groups) {
    config.groups.push_back({kv::CacheKind::kSlidingWindow, kBlockSize, 512, {0}});
    config.groups.push_back({kv::CacheKind::kState, 1, 0, {0}});
    config.groups.back().snapshot = true;
  }
  config.num_blocks = 2 * kRequests * ((kPrompt + kOutputs) / kBlockSize + 2) + 1;
  config.max_rows = kRequests + 1;
  config.max_seq_len = kPrompt + kOutputs;
  return config;
}

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

struct Figures {
  std::vector<double> plan, results;  // us per step, a round each
  int64_t heap = 0;                   // allocations of all measured steps
};

// One round: 256 requests from their prompts to their last tokens.
void run_round(bool three_groups, Figures& figures) {
  engine::Scheduler scheduler(scheduler_config(), cache_config(three_groups));
  const auto sink = std::make_shared<NoSink>();
  for (int32_t r = 0; r < kRequests; ++r) {
    engine::Request request;
    request.prompt.assign(kPrompt, kToken);
    request.max_tokens = kOutputs;
    scheduler.add(engine::RequestId(static_cast<uint64_t>(r) + 1), std::move(request), sink);
  }
  engine::StepPlan plan;
  std::vector<ops::RowResult> results(kRequests, ops::RowResult{kToken, -1.0f});
  double plan_us = 0, results_us = 0;
  int64_t steps = 0;
  for (int32_t step = 0; step < kOutputs; ++step) {
    const int64_t heap = bench::num_heap_allocations();
    const auto begin = std::chrono::steady_clock::now();
    scheduler.schedule(plan);
    BZ_CHECK(scheduler.take_cache_plan(plan.cache));
    const double planned = us_since(begin);
    BZ_CHECK_EQ(plan.rows.size(), static_cast<size_t>(kRequests));
    const auto done = std::chrono::steady_clock::now();
    scheduler.processed(plan.cache.sequence);
    scheduler.process(plan, results);
    const double processed = us_since(done);
    // The prompts are no decode step; vectors reach their capacity in the first steps; the last one ends the requests.
    if (step < 4 || step == kOutputs - 1) continue;
    figures.heap += bench::num_heap_allocations() - heap;
    plan_us += planned;
    results_us += processed;
    ++steps;
  }
  BZ_CHECK(!scheduler.has_work());
  BZ_CHECK_EQ(sink->num_tokens, size_t{kRequests} * kOutputs);
  figures.plan.push_back(plan_us / static_cast<double>(steps));
  figures.results.push_back(results_us / static_cast<double>(steps));
}

double median(std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return figures[figures.size() / 2];
}

int run(int argc, char** argv) {
  Figures figures[2];
  for (int round = 0; round < kRounds; ++round) {
    for (const bool three : {false, true}) run_round(three, figures[three]);
  }
  std::string json;
  const auto say = [&](const std::string& name, double us, int64_t heap) {
    fmt::print("{:<36} {:>7.2f} us, {} heap allocations\n", name, us, heap);
    json += fmt::format("\"{}\": {{\"median\": {:.3f}, \"unit\": \"us\", \"heap\": {}}}, ", name, us, heap);
  };
  for (const bool three : {false, true}) {
    const std::string groups = three ? ", 3 groups" : "";
    say("scheduler: plan 256" + groups, median(figures[three].plan), figures[three].heap);
    say("scheduler: results of 256" + groups, median(figures[three].results), figures[three].heap);
  }
  const double worst = std::max(median(figures[0].plan), median(figures[1].plan));
  fmt::print("goal of the worst plan: {} us, {}\n", kGoal, worst <= kGoal ? "met" : "MISSED");
  json += fmt::format("\"scheduler plan us\": {{\"value\": {:.3f}, \"goal\": {}}}", worst, kGoal);
  if (argc == 3 && std::string(argv[1]) == "--json") std::ofstream(argv[2]) << "{\"B10\": {" << json << "}}\n";
  return figures[0].heap + figures[1].heap == 0 ? 0 : 1;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) { return bz::run(argc, argv); }
