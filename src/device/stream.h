// Stream: where ops are enqueued, in order. Ops enqueue themselves (ops/op_table.h); while a capture is on they are
// recorded instead of run. One thread uses a stream.
#pragma once

#include <cstdint>
#include <memory>

#include "device/graph.h"

namespace bz::device {

class Stream {
 public:
  virtual ~Stream() = default;

  // Ops enqueued between the two are recorded, not run.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Graph> end_capture() = 0;

  // Enqueues a recorded graph. Only engine/graph_runner may call it: a step is staged before it is replayed.
  virtual void launch(const Graph& graph) = 0;

  // Waits until everything enqueued has run.
  virtual void synchronize() = 0;

  // Names what is enqueued next, for faults, traces and the flight recorder. layer: -1 outside the layers.
  virtual void set_layer(int32_t layer) = 0;
  // The number of the step that is enqueued next, for the same purpose.
  virtual void set_step(uint64_t step) = 0;
};

}  // namespace bz::device
