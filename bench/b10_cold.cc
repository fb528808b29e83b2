// B10, the host time of a step (B6) without a GPU: what the engine's thread does from one wait for the device to the
// next, for 256 decoding requests of which 2 % end in a step while as many begin, two steps in flight, prefix cache on.
//
//   cold   what the thread touches comes from memory: the caches were overwritten while it waited. A step lasts
//          milliseconds on the device, and the host has neighbours
//   warm   the same without that
//
//   results     process(): tokens appended, ends looked for, outputs delivered, those that ended dropped
//   add         add() of the requests that came
//   schedule    which rows run, admissions included
//   cache plan  take_cache_plan(): their table changes
//   record      the flight recorder
//   stage       the plan into the ring
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/null/null_device.h"
#include "engine/flight_recorder.h"
#include "engine/scheduler.h"
#include "engine/step_inputs.h"

namespace bz {
namespace {

constexpr int32_t kRows = 256;
constexpr int32_t kPrompt = 32;
constexpr int32_t kMaxTokens = 2048;  // of a step
constexpr int32_t kMeanLife = 50;     // steps: 2 % end in each
constexpr int32_t kMaxModelLen = kPrompt + 2 * kMeanLife;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxChanges = 4096;
constexpr int32_t kToken = 5;
constexpr int kFirstSteps = 3 * kMeanLife;  // lives overlap evenly then
constexpr int kColdSteps = 300, kWarmSteps = 3000;
constexpr size_t kEvictedBytes = size_t{160} << 20;  // more than any cache holds

enum Phase : size_t { kResults, kAdd, kSchedule, kCachePlan, kRecord, kStage, kNumPhases };
constexpr std::array<const char*, kNumPhases> kPhases = {"results", "add", "schedule", "cache plan", "record", "stage"};
using StepTimes = std::array<double, kNumPhases>;  // us

struct CountingSink final : engine::Sink {
  void on_output(const engine::Output& output) override { num_tokens += output.tokens.size(); }
  size_t num_tokens = 0;
};

engine::SchedulerConfig scheduler_config() {
  engine::SchedulerConfig config;
  config.max_num_seqs = kRows;
  config.max_num_batched_tokens = kMaxTokens;
  config.max_model_len = kMaxModelLen;
  return config;
}

kv::CacheConfig cache_config() {
  kv::CacheConfig config;
  config.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
  config.num_blocks = 2 * kRows * (kMaxModelLen / kBlockSize + 2) + 1;
  config.max_rows = kRows + 1;
  config.max_seq_len = kMaxModelLen;
  config.max_changes_per_plan = kMaxChanges;
  config.prefix_cache = true;
  return config;
}

engine::StepInputs make_inputs(device::Device& device) {
  auto inputs = engine::StepInputs::create(device, {kMaxTokens, kRows, kMaxChanges, kMaxModelLen, 1, kRows});
  BZ_CHECK(inputs.ok());
  return std::move(*inputs);
}

// The host's half of EngineCore; the device's is that every row samples kToken.
class HostSteps {
 public:
  // From one wait to the next.
  StepTimes step() {
    make_requests();
    engine::StepPlan& plan = plans_[num_steps_++ % plans_.size()];  // the oldest's place
    StepTimes us{};
    if (num_steps_ > plans_.size()) timed(us[kResults], [&] { collect(plan); });
    timed(us[kAdd], [&] { add_requests(); });
    timed(us[kSchedule], [&] { scheduler_.schedule(plan); });
    timed(us[kCachePlan], [&] { BZ_CHECK(scheduler_.take_cache_plan(plan.cache)); });
    const auto key = engine::choose_graph_key({engine::GraphMode::kFull, kMaxTokens, kRows}, plan.shape());
    timed(us[kRecord], [&] { recorder_.record(plan, key); });
    timed(us[kStage], [&] { inputs_.stage(plan, key); });
    return us;
  }

 private:
  template <class Work>
  static void timed(double& us, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  // In place of those that ended in the step before. Not timed: that is their clients' work.
  void make_requests() {
    coming_.resize(static_cast<size_t>(kRows - scheduler_.num_running() - scheduler_.num_waiting()));
    for (auto& [request, sink] : coming_) {
      request = {};
      for (int32_t t = 0; t < kPrompt; ++t) request.prompt.push_back(static_cast<int32_t>(random_() % 1000));
      request.max_tokens = 1 + static_cast<int32_t>(random_() % (2 * kMeanLife - 1));
      sink = std::make_shared<CountingSink>();
    }
  }
  void add_requests() {
    for (auto& [request, sink] : coming_)
      scheduler_.add(engine::RequestId(++last_id_), std::move(request), std::move(sink));
  }
  void collect(const engine::StepPlan& plan) {
    inputs_.release(plan.cache.sequence);
    scheduler_.processed(plan.cache.sequence);
    scheduler_.process(plan, results_);
  }

  std::unique_ptr<device::Device> device_ = device::null::create_null_device();
  engine::Scheduler scheduler_{scheduler_config(), cache_config()};
  engine::StepInputs inputs_ = make_inputs(*device_);
  engine::FlightRecorder recorder_{kRows};
  std::array<engine::StepPlan, 2> plans_;
  const std::vector<ops::RowResult> results_ = std::vector(kRows, ops::RowResult{kToken, -1.0f});
  std::vector<std::pair<engine::Request, std::shared_ptr<CountingSink>>> coming_;
  std::mt19937_64 random_{1};
  uint64_t last_id_ = 0;
  uint64_t num_steps_ = 0;
};

void overwrite_caches() {
  static std::vector<uint64_t> memory(kEvictedBytes / sizeof(uint64_t));
  for (uint64_t& word : memory) ++word;
}

struct Summary {
  double median, mean, p99;
};

Summary summarize(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const double sum = std::accumulate(us.begin(), us.end(), 0.0);
  return {us[us.size() / 2], sum / static_cast<double>(us.size()), us[us.size() * 99 / 100]};
}

int run(int argc, char** argv) {
  HostSteps host;
  for (int i = 0; i < kFirstSteps; ++i) host.step();
  std::string json;
  const auto say = [&](const std::string& name, const std::vector<double>& us) {
    const Summary s = summarize(us);
    fmt::print("{:<36} {:>7.2f} us (mean {:.2f}, p99 {:.2f})\n", name, s.median, s.mean, s.p99);
    json += fmt::format("{}\"{}\": {{\"median\": {:.3f}, \"mean\": {:.3f}, \"p99\": {:.3f}, \"unit\": \"us\"}}",
                        json.empty() ? "" : ", ", name, s.median, s.mean, s.p99);
  };
  for (const bool cold : {true, false}) {
    const int num_steps = cold ? kColdSteps : kWarmSteps;
    std::array<std::vector<double>, kNumPhases> phases;
    std::vector<double> whole;
    for (int i = 0; i < num_steps; ++i) {
      if (cold) overwrite_caches();
      const StepTimes us = host.step();
      for (size_t p = 0; p < kNumPhases; ++p) phases[p].push_back(us[p]);
      whole.push_back(std::accumulate(us.begin(), us.end(), 0.0));
    }
    const std::string temperature = cold ? ", cold" : ", warm";
    for (size_t p = 0; p < kNumPhases; ++p) say(fmt::format("host: {}{}", kPhases[p], temperature), phases[p]);
    say("host: step of 256" + temperature, whole);
  }
  if (argc == 3 && std::string(argv[1]) == "--json") std::ofstream(argv[2]) << "{\"B10\": {" << json << "}}\n";
  return 0;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) { return bz::run(argc, argv); }
