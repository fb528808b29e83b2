// The null device's stream and graph: what is enqueued runs at once on the caller's thread, or is recorded and run by
// launch(). A node holds plain values only, as everywhere (PAD-4).
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "device/stream.h"

namespace bz::device::null {

// A function with a copy of its parameters.
struct Node {
  void (*run)(void (*function)(), const std::byte* params) = nullptr;
  void (*function)() = nullptr;  // typed, erased; run casts it back
  std::unique_ptr<std::byte[]> params;
};

class NullGraph final : public Graph {
 public:
  size_t num_nodes() const override { return nodes_.size(); }
  void add(Node node) { nodes_.push_back(std::move(node)); }
  void run() const {
    for (const Node& node : nodes_) node.run(node.function, node.params.get());
  }

 private:
  std::vector<Node> nodes_;
};

class NullStream final : public Stream {
 public:
  void begin_capture() override {
    BZ_CHECK_MSG(capture_ == nullptr, "a capture is already on");
    capture_ = std::make_unique<NullGraph>();
  }
  Result<std::unique_ptr<Graph>> end_capture() override {
    BZ_CHECK(capture_ != nullptr);
    return std::unique_ptr<Graph>(std::move(capture_));
  }
  void launch(const Graph& graph) override {
    BZ_CHECK_MSG(capture_ == nullptr, "a graph cannot be launched inside a capture");
    static_cast<const NullGraph&>(graph).run();
  }
  void synchronize() override {}
  void set_layer(int32_t) override {}
  void begin_step(uint64_t) override {}
  void end_step(uint64_t) override {}
  void wait_step(uint64_t) override {}

  NullGraph* capture() { return capture_.get(); }

 private:
  std::unique_ptr<NullGraph> capture_;
};

// Records or runs function(params).
template <class Params>
void enqueue(Stream& stream, const Params& params, void (*function)(const Params&)) {
  static_assert(std::is_trivially_copyable_v<Params>, "a node holds addresses and plain values only");
  NullGraph* capture = static_cast<NullStream&>(stream).capture();
  if (capture == nullptr) return function(params);
  Node node;
  node.function = reinterpret_cast<void (*)()>(function);
  node.params = std::make_unique<std::byte[]>(sizeof(Params));
  std::memcpy(node.params.get(), &params, sizeof(Params));
  node.run = [](void (*erased)(), const std::byte* bytes) {
    reinterpret_cast<void (*)(const Params&)>(erased)(*reinterpret_cast<const Params*>(bytes));
  };
  capture->add(std::move(node));
}

}  // namespace bz::device::null
