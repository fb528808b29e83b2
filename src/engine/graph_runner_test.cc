#include "engine/graph_runner.h"

#include <gtest/gtest.h>

#include "device/null/null_device.h"
#include "models/llama.h"
#include "models/tiny_llama.h"

namespace bz::engine {
namespace {

// The null device, which says what was allocated, in order.
class RecordingDevice final : public device::Device {
 public:
  device::DeviceKind kind() const override { return device::DeviceKind::kNull; }
  std::string description() const override { return "recording"; }
  std::unique_ptr<device::Stream> create_stream() override { return null_->create_stream(); }
  Result<device::Buffer> allocate(size_t bytes) override {
    allocated.emplace_back("buffer");
    return null_->allocate(bytes);
  }
  Result<device::Buffer> allocate_host_mapped(size_t bytes) override {
    allocated.emplace_back("host");
    return null_->allocate_host_mapped(bytes);
  }
  Result<std::unique_ptr<device::SlabMemory>> create_slabs(const device::SlabRequest& request) override {
    allocated.emplace_back("slabs");
    return null_->create_slabs(request);
  }
  void copy_to_device(void* dst, const void* src, size_t bytes) override { null_->copy_to_device(dst, src, bytes); }
  void copy_to_host(void* dst, const void* src, size_t bytes) override { null_->copy_to_host(dst, src, bytes); }

  std::vector<std::string> allocated;

 private:
  std::unique_ptr<device::Device> null_ = device::null::create_null_device();
};

class RunnerCache : public testing::Test {
 protected:
  RunnerCache() {
    request_.layers = model_->cache_specs();
    request_.cache_bytes = 1 << 20;
    config_.limits = {64, 4, 64};
    config_.cache = kv::make_cache_config(kv::make_layout(request_).value(), 5, 64);
  }

  RecordingDevice device_;
  const ops::OpTable* ops_ = ops::op_table_for(device::DeviceKind::kNull).value();
  const std::vector<std::byte> bytes_ = models::TinyLlama{}.writer().bytes();
  const formats::GgufFile file_ = formats::GgufFile::parse(bytes_, "tiny").value();
  const std::unique_ptr<models::Model> model_ =
      models::make_llama(file_, models::model_config_from_gguf(file_).value(), *ops_, DType::kF16).value();
  kv::LayoutRequest request_;
  RunnerConfig config_;
};

// What is free when the layout is chosen is the cache's alone.
TEST_F(RunnerCache, IsChosenWhenAllElseIsAllocated) {
  std::vector<std::string> before;
  const auto choose = [&] {
    before = device_.allocated;
    request_.cache_bytes = 4 << 20;
    return kv::make_layout(request_);
  };
  const auto runner = GraphRunner::create(device_, *ops_, *model_, choose, config_).value();
  EXPECT_GE(before.size(), 6u);  // staging, step memory, results, logits, scratch, activations
  before.emplace_back("slabs");
  EXPECT_EQ(device_.allocated, before);
  EXPECT_EQ(runner->slabs().request().num_blocks, kv::make_layout(request_)->num_blocks);
  EXPECT_EQ(runner->config().cache.num_blocks, runner->slabs().request().num_blocks);
  EXPECT_GT(runner->config().cache.num_blocks, config_.cache.num_blocks);
}

TEST_F(RunnerCache, WithoutALayoutThereIsNoRunner) {
  const auto choose = []() -> Result<kv::Layout> { return resource_exhausted("nothing is left"); };
  const auto runner = GraphRunner::create(device_, *ops_, *model_, choose, config_);
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.status().message(), "nothing is left");
}

}  // namespace
}  // namespace bz::engine
