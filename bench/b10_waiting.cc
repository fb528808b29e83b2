// B10, the queue's part: what those who wait cost a step, on the CPU. 256 requests run, 2 % of them end in a step and
// as many are admitted and come, while none or 10,000 others wait, of one client or of a thousand.
//
//   schedule  schedule(), admissions included; us per step
//   add       add() of one request that comes; us
//   cancel    cancel() of one that waits; us
#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/scheduler.h"

namespace bz {
namespace {

constexpr int32_t kRows = 256;
constexpr int32_t kPrompt = 32;
constexpr int32_t kMeanLife = 50;  // steps: 2 % end in each
constexpr int32_t kMaxModelLen = kPrompt + 2 * kMeanLife;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kToken = 5;
constexpr int kFirstSteps = 3 * kMeanLife;  // lives overlap evenly then
constexpr int kSteps = 1000;

struct NoSink final : engine::Sink {
  void on_output(const engine::Output&) override {}
};

engine::SchedulerConfig scheduler_config() {
  engine::SchedulerConfig config;
  config.max_num_seqs = kRows;
  config.max_num_batched_tokens = kRows * kPrompt;
  config.max_model_len = kMaxModelLen;
  return config;
}

kv::CacheConfig cache_config() {
  kv::CacheConfig config;
  config.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
  config.num_blocks = 2 * kRows * (kMaxModelLen / kBlockSize + 2) + 1;
  config.max_rows = kRows + 1;
  config.max_seq_len = kMaxModelLen;
  return config;
}

class Crowd {
 public:
  explicit Crowd(int32_t num_clients) : num_clients_(num_clients) {}

  // As many as are to wait beside those that run.
  void fill(int64_t num_waiting) {
    while (scheduler_.num_running() + scheduler_.num_waiting() < kRows + num_waiting) {
      engine::Request request;
      request.prompt.assign(kPrompt, kToken);
      request.max_tokens = 1 + static_cast<int32_t>(random_() % (2 * kMeanLife - 1));
      request.client = fmt::format("client {}", random_() % static_cast<uint64_t>(num_clients_));
      timed(add_us, [&] { scheduler_.add(engine::RequestId(++last_id_), std::move(request), sink_); });
    }
  }
  void step() {
    timed(schedule_us, [&] { scheduler_.schedule(plan_); });
    BZ_CHECK(scheduler_.take_cache_plan(plan_.cache));
    scheduler_.processed(plan_.cache.sequence);
    scheduler_.process(plan_, results_);
  }
  // The youngest, which waits if anybody does.
  void cancel() {
    timed(cancel_us, [&] { scheduler_.cancel(engine::RequestId(last_id_--)); });
  }

  std::vector<double> schedule_us, add_us, cancel_us;

 private:
  template <class Work>
  static void timed(std::vector<double>& us, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }

  int32_t num_clients_;
  engine::Scheduler scheduler_{scheduler_config(), cache_config()};
  engine::StepPlan plan_;
  const std::vector<ops::RowResult> results_ = std::vector(kRows, ops::RowResult{kToken, -1.0f});
  std::shared_ptr<NoSink> sink_ = std::make_shared<NoSink>();
  std::mt19937_64 random_{1};
  uint64_t last_id_ = 0;
};

double median(std::vector<double> figures) {
  std::sort(figures.begin(), figures.end());
  return figures[figures.size() / 2];
}

int run(int argc, char** argv) {
  std::string json;
  const auto say = [&](const std::string& name, const std::vector<double>& us) {
    double sum = 0;
    for (const double x : us) sum += x;
    const double mean = sum / static_cast<double>(us.size());
    fmt::print("{:<56} {:>9.2f} us (mean {:.2f})\n", name, median(us), mean);
    json += fmt::format("{}\"{}\": {{\"median\": {:.3f}, \"mean\": {:.3f}, \"unit\": \"us\"}}",
                        json.empty() ? "" : ", ", name, median(us), mean);
  };
  for (const auto& [num_waiting, num_clients] : {std::pair(0, 1), std::pair(10000, 1), std::pair(10000, 1000)}) {
    Crowd crowd(num_clients);
    for (int i = 0; i < kFirstSteps + kSteps; ++i) {
      if (i == kFirstSteps) crowd.schedule_us.clear(), crowd.add_us.clear();
      crowd.fill(num_waiting);
      crowd.step();
    }
    for (int i = 0; i < std::min(num_waiting, 1000); ++i) crowd.cancel();
    const std::string who =
        num_waiting == 0 ? "nobody waits" : fmt::format("{} of {} clients wait", num_waiting, num_clients);
    say("queue: schedule, " + who, crowd.schedule_us);
    say("queue: add, " + who, crowd.add_us);
    if (num_waiting > 0) say("queue: cancel, " + who, crowd.cancel_us);
  }
  if (argc == 3 && std::string(argv[1]) == "--json") std::ofstream(argv[2]) << "{\"B10\": {" << json << "}}\n";
  return 0;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) { return bz::run(argc, argv); }
