#include "device/null/null_device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/math.h"
#include "device/null/null_stream.h"

namespace bz::device::null {
namespace {

constexpr size_t kAlignment = 128;

class NullSlabs final : public SlabMemory {
 public:
  NullSlabs(const SlabRequest& request, Buffer memory) : SlabMemory(request), memory_(std::move(memory)) {}
  std::byte* base() const override { return memory_.device(); }
  bool null_block_is_zero() const override {
    const std::byte* first = base();
    return std::all_of(first, first + request_.block_stride, [](std::byte b) { return b == std::byte{0}; });
  }
  void rezero_null_block() override { std::memset(base(), 0, static_cast<size_t>(request_.block_stride)); }
  bool canary_intact() const override { return true; }

 private:
  Buffer memory_;
};

class NullDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kNull; }
  std::string description() const override { return "null: no model is computed, tokens are made up"; }
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<NullStream>(); }
  Result<Buffer> allocate(size_t bytes) override {
    // calloc: zeroed, and of what nobody touches nothing is used.
    void* whole = std::calloc(1, bytes + kAlignment);
    if (whole == nullptr) return resource_exhausted("{} bytes of memory cannot be had", bytes);
    void* data = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(whole), uintptr_t{kAlignment}));
    return Buffer(data, data, bytes, [whole] { std::free(whole); });
  }
  Result<Buffer> allocate_host_mapped(size_t bytes) override { return allocate(bytes); }
  Result<std::unique_ptr<SlabMemory>> create_slabs(const SlabRequest& request) override {
    BZ_ASSIGN(Buffer memory, allocate(static_cast<size_t>(request.block_stride * request.num_blocks)));
    return std::unique_ptr<SlabMemory>(std::make_unique<NullSlabs>(request, std::move(memory)));
  }
  void copy_to_device(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
  void copy_to_host(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
};

}  // namespace

std::unique_ptr<Device> create_null_device() { return std::make_unique<NullDevice>(); }

}  // namespace bz::device::null
