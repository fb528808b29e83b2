// Device: where ops run and caches live. Backends are chosen at run time by name (registry.h); only registry.cc names
// them. A Device outlives the buffers, streams and slabs it made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "device/buffer.h"
#include "device/slab_memory.h"
#include "device/stream.h"

namespace bz::device {

enum class DeviceKind { kCpu, kCuda, kNull };

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // One line for people: "cpu: 2 threads, avx512-vnni".
  virtual std::string description() const = 0;

  // Bytes that can still be allocated; none where that is nobody's to say: memory of the host is everybody's.
  virtual std::optional<int64_t> free_bytes() const { return std::nullopt; }

  virtual std::unique_ptr<Stream> create_stream() = 0;
  // Zeroed memory of the device, aligned to 128 bytes.
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  // Zeroed memory that host and device both read and write; host() is never null.
  virtual Result<Buffer> allocate_host_mapped(size_t bytes) = 0;
  virtual Result<std::unique_ptr<SlabMemory>> create_slabs(const SlabRequest& request) = 0;

  // Synchronous copies between host memory and buffers of this device. For loading and checks, never inside a step.
  virtual void copy_to_device(void* device_dst, const void* host_src, size_t bytes) = 0;
  virtual void copy_to_host(void* host_dst, const void* device_src, size_t bytes) = 0;
};

}  // namespace bz::device
