#include "device/cpu/cpu_stream.h"

#include <cstring>
#include <utility>

#include "device/cpu/fault_handler.h"

namespace bz::device::cpu {

void CpuGraph::add(const Node& node) {
  params_.push_back(std::make_unique<std::byte[]>(node.param_bytes));
  std::memcpy(params_.back().get(), node.params, node.param_bytes);
  nodes_.push_back(node);
  nodes_.back().params = params_.back().get();
}

void CpuStream::begin_capture() {
  BZ_CHECK_MSG(capture_ == nullptr, "a capture is already on");
  capture_ = std::make_unique<CpuGraph>();
}

std::unique_ptr<Graph> CpuStream::end_capture() {
  BZ_CHECK(capture_ != nullptr);
  return std::move(capture_);
}

void CpuStream::add(const Node& node) {
  if (capture_ != nullptr) {
    capture_->add(node);
    return;
  }
  pool_->run([&](Worker& worker) {
    const FaultScope scope(node.label.op, node.label.layer, step_);
    node.run(node, worker);
  });
}

void CpuStream::launch(const Graph& graph) {
  BZ_CHECK_MSG(capture_ == nullptr, "a graph cannot be launched inside a capture");
  const auto& nodes = static_cast<const CpuGraph&>(graph).nodes();
  pool_->run([&](Worker& worker) {
    for (const Node& node : nodes) {
      const FaultScope scope(node.label.op, node.label.layer, step_);
      node.run(node, worker);
      worker.barrier();
    }
  });
}

}  // namespace bz::device::cpu
