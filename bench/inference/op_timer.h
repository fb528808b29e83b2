// OpTimer: where a step's time goes, op by op, measured inside the recorded graph that really runs.
//
// table() wraps every function of an op table: after each op it enqueues a stamp, a node of its own, in which worker 0
// reads the clock and books the time since the last stamp to that op. So graphs are recorded and replayed as ever, all
// threads meet at the barriers they always meet at, and the price is one barrier a node.
// One at a time: op tables are plain functions, so the timer they report to is global.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "inference/workload.h"
#include "ops/op_table.h"

namespace bz::bench {

class OpTimer final : public StepProbe {
 public:
  explicit OpTimer(const ops::OpTable& inner);
  ~OpTimer() override;
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

  const ops::OpTable& table() const { return table_; }

  // Totals of one op and shape.
  struct Entry {
    std::string name;  // "matmul q4_1 1536+1536x576"
    int64_t calls = 0;
    double seconds = 0;
    int64_t step_calls = 0;  // of the step that runs
    double step_seconds = 0;
    double step_ops = 0;
    double ops = 0;
    double bytes = 0;    // of weights, a call
    double row_ops = 0;  // of one row, a call
  };
  void begin_step() override;
  void end_step(bool counted) override;
  void reset();
  // Since reset(), slowest first. "(host)" is a step outside its graphs: schedule, stage, deliver.
  std::string report(int64_t steps) const;

  // For the wrappers in op_timer.cc.
  const ops::OpTable& inner() const { return inner_; }
  Entry* find(const Entry& wanted);        // by name; added if it is new
  void stamp(Entry* entry, int32_t rows);  // rows: that a matmul computed

 private:
  using Clock = std::chrono::steady_clock;

  const ops::OpTable& inner_;
  ops::OpTable table_;
  std::deque<Entry> entries_;  // addresses stay: recorded nodes hold them
  Clock::time_point last_ = Clock::now();
};

}  // namespace bz::bench
