// EngineCore: schedule, stage, run, deliver. One thread calls it; ThreadedEngine gives it one of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/flight_recorder.h"
#include "engine/graph_runner.h"
#include "engine/kv_sanitizer.h"
#include "engine/scheduler.h"

namespace bz::engine {

class EngineCore {
 public:
  // The runner outlives the core. sanitizer may be null.
  EngineCore(GraphRunner& runner, const SchedulerConfig& config, const kv::CacheConfig& cache,
             std::unique_ptr<KvSanitizer> sanitizer);

  Status check(const Request& request) const { return scheduler_.check(request); }
  void add(RequestId id, Request request, std::shared_ptr<Sink> sink) {
    scheduler_.add(id, std::move(request), std::move(sink));
  }
  bool cancel(RequestId id) { return scheduler_.cancel(id); }

  bool has_work() const {
    return alive_ && (num_in_flight_ > 0 || scheduler_.has_work() || scheduler_.has_pending_changes());
  }
  // Plans and runs one step of whatever there is to do, and reads the results of the oldest one when max_in_flight are
  // on their way. False: there was nothing to do.
  bool step();
  // A step without rows, padded at least this far: every batch row names the null row.
  void dummy_step(int32_t min_rows = 1, int32_t min_tokens = 0);
  // Records the decode graphs of up to `max_rows` rows, smallest first, each followed by a dummy step that runs it.
  // Larger ones are left to capture_one().
  Status warm_up(int32_t max_rows = std::numeric_limits<int32_t>::max());
  // Records one of the graphs that warm_up, or mode auto, left for later. False: there is none.
  bool has_captures() const { return alive_ && runner_.has_deferred_captures(); }
  bool capture_one() { return alive_ && runner_.capture_deferred(); }

  // Called after each step with what ran, before the next one is planned: scoring and tests read the logits here.
  using Observer = std::function<void(const StepPlan& plan, const StepResult& result)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }
  // Steps that may be enqueued before the first one's results are read: 1 or 2. With an observer or a sanitizer: 1.
  void set_max_in_flight(int32_t steps);
  // As many in flight as the device has use for: 2 where it runs beside the host, unless each step is looked at.
  void use_pipeline();
  // Pads every later step at least this far (tests; ranks that agreed on a size).
  void set_min_rows(int32_t min_rows) { min_rows_ = min_rows; }

  // Ends every request that runs or waits.
  void finish_all(FinishReason reason, const std::string& error = {}) { scheduler_.finish_all(reason, error); }

  // For a fault of the device while this step was waited for: which step and graph, and the record of it.
  std::string fault_summary(uint64_t step) const;
  Status save_fault_record(const std::string& path, const LoadOptions& options, uint64_t step) const;

  bool alive() const { return alive_; }
  EngineStats stats() const;
  const Scheduler& scheduler() const { return scheduler_; }
  GraphRunner& runner() { return runner_; }
  const KvSanitizer* sanitizer() const { return sanitizer_.get(); }

 private:
  // Completes the plan and enqueues it.
  void submit(StepPlan& plan);
  // Reads the results of the oldest step in flight.
  void collect();
  StepResult finish_step(const StepPlan& plan);
  StepPlan& next_plan() { return plans_[num_submitted_ % kMaxInFlight]; }
  void fail_stop(const std::string& why);

  GraphRunner& runner_;
  Scheduler scheduler_;
  std::unique_ptr<KvSanitizer> sanitizer_;
  static constexpr uint32_t kMaxInFlight = 2;
  StepPlan plans_[kMaxInFlight];  // by submission, modulo; reused: steady steps allocate nothing (ENG-3)
  StepPlan change_plan_;
  uint32_t num_submitted_ = 0;
  int32_t num_in_flight_ = 0;
  int32_t max_in_flight_ = 1;
  Observer observer_;
  int32_t min_rows_ = 0;
  FlightRecorder recorder_;
  bool alive_ = true;
  std::string failure_;
};

}  // namespace bz::engine
