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

#include "ops/op_table.h"

namespace bz::bench {

class OpTimer {
 public:
  explicit OpTimer(const ops::OpTable& inner);
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

  const ops::OpTable& table() const { return table_; }

  // Totals of one op and shape.
  struct Entry {
    std::string name;  // "matmul q4_1 1536+1536x576"
    int64_t calls = 0;
    double seconds = 0;
    double bytes = 0;  // of weights, a call
    double ops = 0;    // of one token, a call
  };
  void reset();
  // Since reset(), slowest first. "(between steps)" is everything outside the graphs: schedule, stage, deliver.
  // tokens: of a step, for GOP/s.
  std::string report(int64_t steps, double tokens) const;

  // For the wrappers in op_timer.cc.
  const ops::OpTable& inner() const { return inner_; }
  Entry* find(const Entry& wanted);  // by name; added if it is new
  void stamp(Entry* entry);

 private:
  using Clock = std::chrono::steady_clock;

  const ops::OpTable& inner_;
  ops::OpTable table_;
  std::deque<Entry> entries_;  // addresses stay: recorded nodes hold them
  Clock::time_point last_ = Clock::now();
};

}  // namespace bz::bench
