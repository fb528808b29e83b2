// Graph: a recorded sequence of ops. It holds addresses and plain values only, never what a step decides, so that a
// replay reads just what its own stage and prepare wrote (PAD-4). True of the CPU backend too.
#pragma once

#include <cstddef>

namespace bz::device {

class Graph {
 public:
  virtual ~Graph() = default;
  virtual size_t num_nodes() const = 0;
};

}  // namespace bz::device
