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

Result<std::unique_ptr<Graph>> CpuStream::end_capture() {
  BZ_CHECK(capture_ != nullptr);
  return std::unique_ptr<Graph>(std::move(capture_));
}

void CpuStream::add(const Node& node) {
  if (capture_ != nullptr) {
    capture_->add(node);
    return;
  }
  run_nodes(&node, 1);
}

void CpuStream::launch(const Graph& graph) {
  BZ_CHECK_MSG(capture_ == nullptr, "a graph cannot be launched inside a capture");
  const auto& nodes = static_cast<const CpuGraph&>(graph).nodes();
  run_nodes(nodes.data(), nodes.size());
}

void CpuStream::run_nodes(const Node* nodes, size_t count) {
  pool_->run(count, [&](size_t i, Worker& worker) {
    const FaultScope scope(nodes[i].label.op, nodes[i].label.layer, step_);
    nodes[i].run(nodes[i], worker);
  });
}

}  // namespace bz::device::cpu
