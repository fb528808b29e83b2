// Stream: where ops are enqueued, in order. Ops enqueue themselves (ops/op_table.h); while a capture is on they are
// recorded instead of run. One thread uses a stream.
#pragma once

#include <cstdint>
#include <memory>

#include "device/graph.h"

namespace bz {
template <class T>
class Result;  // base/status.h, which nvcc must not read: fmt
}

namespace bz::device {

// Of the steps waited for since measure_steps(); the host's waiting is counted all the time.
struct StepTimes {
  int64_t steps = 0;
  double busy_seconds = 0;  // between a step's begin and its end
  double idle_seconds = 0;  // between the end of one and the begin of the next
  double wait_seconds = 0;  // the host's, in wait_step()
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Ops enqueued between the two are recorded, not run. The end fails when the device cannot hold the graph.
  virtual void begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;

  // Enqueues a recorded graph. Only engine/graph_runner may call it: a step is staged before it is replayed.
  virtual void launch(const Graph& graph) = 0;

  // Waits until everything enqueued has run.
  virtual void synchronize() = 0;

  // Names what is enqueued next, for faults, traces and the flight recorder. layer: -1 outside the layers.
  virtual void set_layer(int32_t layer) = 0;

  // Steps are numbered from 1 and enqueued in order: begin_step, ops and graphs, end_step. wait_step waits until that
  // step has run, however many are enqueued behind it. At most kMaxOpenSteps are between begin and wait.
  static constexpr int kMaxOpenSteps = 4;
  virtual void begin_step(uint64_t step) = 0;
  virtual void end_step(uint64_t step) = 0;
  virtual void wait_step(uint64_t step) = 0;

  // Measures from here on how long steps run on the device, and how long it idles between one and the next. Costs
  // microseconds a step. A device that runs ops as they are enqueued measures nothing.
  virtual void measure_steps() {}
  virtual StepTimes step_times() const { return {}; }
};

}  // namespace bz::device
