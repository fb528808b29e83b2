// The CPU's stream and graph. A node is an op's kernel with a copy of its parameters: addresses and plain values only,
// so every padding fault that a CUDA graph can have can be made, and is tested, on a machine without a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "device/cpu/thread_pool.h"
#include "device/cpu/worker.h"
#include "device/stream.h"

namespace bz::device::cpu {

// Names a node in faults and traces.
struct OpLabel {
  const char* op = "";
  int32_t layer = -1;
};

// The parameters live with whoever holds the node: the graph that recorded it, or the launcher that runs it at once.
struct Node {
  OpLabel label;
  void (*run)(const Node& self, Worker& worker) = nullptr;
  void (*kernel)() = nullptr;  // the typed kernel, erased; run casts it back
  const void* params = nullptr;
  size_t param_bytes = 0;
};

class CpuGraph final : public Graph {
 public:
  size_t num_nodes() const override { return nodes_.size(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Copies the parameters.
  void add(const Node& node);

 private:
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<std::byte[]>> params_;  // one a node; aligned for any type
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(ThreadPool* pool) : pool_(pool) {}

  void begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;
  void launch(const Graph& graph) override;
  void synchronize() override {}  // ops run in launch and enqueue
  void set_layer(int32_t layer) override { layer_ = layer; }
  void begin_step(uint64_t step) override { step_ = step; }
  void end_step(uint64_t) override {}
  void wait_step(uint64_t) override {}

  void add(const Node& node);
  int32_t layer() const { return layer_; }

 private:
  void run_nodes(const Node* nodes, size_t count);

  ThreadPool* pool_;
  std::unique_ptr<CpuGraph> capture_;
  int32_t layer_ = -1;
  uint64_t step_ = 0;
};

// A kernel runs on every worker of the pool at once.
template <class Params>
using Kernel = void (*)(const Params&, Worker&);

// Records or runs an op: the body of every CPU launcher.
template <class Params>
void enqueue(Stream& stream, const char* op, const Params& params, Kernel<Params> kernel) {
  static_assert(std::is_trivially_copyable_v<Params>, "a node holds addresses and plain values only");
  auto& cpu_stream = static_cast<CpuStream&>(stream);
  Node node;
  node.label = {op, cpu_stream.layer()};
  node.kernel = reinterpret_cast<void (*)()>(kernel);
  node.params = &params;
  node.param_bytes = sizeof(Params);
  node.run = [](const Node& self, Worker& worker) {
    reinterpret_cast<Kernel<Params>>(self.kernel)(*static_cast<const Params*>(self.params), worker);
  };
  cpu_stream.add(node);
}

}  // namespace bz::device::cpu
