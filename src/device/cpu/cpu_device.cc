#include "device/cpu/cpu_device.h"

#include <sys/mman.h>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/math.h"
#include "device/cpu/cpu_slabs.h"
#include "device/cpu/cpu_stream.h"
#include "device/cpu/thread_pool.h"

namespace bz::device::cpu {
namespace {

constexpr int kMaxThreads = 1024;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : pool_(num_threads) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string description() const override {
    return fmt::format("cpu, {} thread{}", pool_.size(), pool_.size() == 1 ? "" : "s");
  }
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CpuStream>(&pool_); }

  Result<Buffer> allocate(size_t bytes) override {
    // Anonymous memory is zero and costs nothing until it is touched.
    const size_t mapped = round_up<size_t>(bytes == 0 ? 1 : bytes, 4096);
    void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
      return resource_exhausted("{} bytes of memory cannot be had: {}", bytes, std::strerror(errno));
    return Buffer(data, data, bytes, [data, mapped] { munmap(data, mapped); });
  }
  Result<Buffer> allocate_host_mapped(size_t bytes) override { return allocate(bytes); }
  Result<std::unique_ptr<SlabMemory>> create_slabs(const SlabRequest& request) override {
    return create_cpu_slabs(request);
  }

  void copy_to_device(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }
  void copy_to_host(void* dst, const void* src, size_t bytes) override { std::memcpy(dst, src, bytes); }

 private:
  ThreadPool pool_;
};

}  // namespace

Result<std::unique_ptr<Device>> create_cpu_device(int num_threads) {
  if (num_threads < 0 || num_threads > kMaxThreads) {
    return invalid_argument("--threads {}: must be between 1 and {} (0: one per core)", num_threads, kMaxThreads);
  }
  const int count = num_threads == 0 ? default_num_threads() : num_threads;
  try {
    return std::unique_ptr<Device>(std::make_unique<CpuDevice>(count));
  } catch (const std::system_error& e) {
    return resource_exhausted("{} threads cannot be started ({}); use a smaller --threads", count, e.what());
  }
}

}  // namespace bz::device::cpu
