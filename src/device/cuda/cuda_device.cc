#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <string_view>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_check.h"
#include "device/cuda/cuda_slabs.h"
#include "device/cuda/cuda_stream.h"

namespace bz::device::cuda {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& prop) : index_(index), prop_(prop) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override {
    return fmt::format("cuda:{}, {}, {} SMs, {:.0f} GiB", index_, prop_.name, prop_.multiProcessorCount,
                       static_cast<double>(prop_.totalGlobalMem) / (1 << 30));
  }
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CudaStream>(index_); }

  Result<Buffer> allocate(size_t bytes) override {
    use();
    void* data = nullptr;
    const size_t size = bytes == 0 ? 1 : bytes;
    BZ_TRY(cuda_status(cudaMalloc(&data, size), fmt::format("{} bytes on cuda:{}", bytes, index_).c_str(),
                       "use smaller --max-num-batched-tokens, --max-num-seqs or --kv-cache-bytes"));
    BZ_CUDA_CHECK(cudaMemset(data, 0, size));
    BZ_CUDA_CHECK(cudaDeviceSynchronize());
    return Buffer(nullptr, data, bytes, [data] { cudaFree(data); });
  }

  Result<Buffer> allocate_host_mapped(size_t bytes) override {
    use();
    void* host = nullptr;
    const size_t size = bytes == 0 ? 1 : bytes;
    BZ_TRY(cuda_status(cudaHostAlloc(&host, size, cudaHostAllocMapped | cudaHostAllocPortable),
                       fmt::format("{} bytes of host-mapped memory", bytes).c_str(), "free some host memory"));
    void* device = nullptr;
    BZ_CUDA_CHECK(cudaHostGetDevicePointer(&device, host, 0));
    std::fill_n(static_cast<std::byte*>(host), size, std::byte{0});
    return Buffer(host, device, bytes, [host] { cudaFreeHost(host); });
  }

  Result<std::unique_ptr<SlabMemory>> create_slabs(const SlabRequest& request) override {
    return create_cuda_slabs(index_, request);
  }

  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    use();
    BZ_CUDA_CHECK(cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice));
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    use();
    BZ_CUDA_CHECK(cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost));
  }

 private:
  void use() const { BZ_CUDA_CHECK(cudaSetDevice(index_)); }

  int index_;
  cudaDeviceProp prop_;
};

// BZ_CUDA_ARCHS: the architectures this build has code for, "90a;100". Machine code of major.minor runs on GPUs of the
// same major version and at least that minor one; code of an "a" architecture on exactly that one.
bool has_code_for(int major, int minor) {
  std::string_view archs = BZ_CUDA_ARCHS;
  while (!archs.empty()) {
    const size_t end = std::min(archs.find(';'), archs.size());
    int number = 0;
    bool exact = false;
    for (char c : archs.substr(0, end)) {
      if (c >= '0' && c <= '9') number = number * 10 + (c - '0');
      exact |= c == 'a';
    }
    if (number / 10 == major && (exact ? number % 10 == minor : number % 10 <= minor)) return true;
    archs.remove_prefix(std::min(end + 1, archs.size()));
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Status(StatusCode::kUnavailable,
                  fmt::format("--device cuda:{}: no usable NVIDIA driver or GPU on this machine ({}); use --device cpu",
                              index, cudaGetErrorString(error)));
  }
  if (index < 0 || index >= count) {
    return invalid_argument("--device cuda:{}: this machine has {} GPU{}; use cuda:0 to cuda:{}", index, count,
                            count == 1 ? "" : "s", count - 1);
  }
  cudaDeviceProp prop{};
  BZ_TRY(cuda_status(cudaGetDeviceProperties(&prop, index), "the GPU's properties", "use --device cpu"));
  if (!has_code_for(prop.major, prop.minor)) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("--device cuda:{}: {} is sm_{}{}, this build has code for {} alone; build with ./dev build "
                    "--arch all, or use --device cpu",
                    index, prop.name, prop.major, prop.minor, BZ_CUDA_ARCHS));
  }
  // Spinning costs a core while a step runs and saves microseconds at its end.
  BZ_TRY(cuda_status(cudaSetDevice(index), "the GPU", "use --device cpu"));
  BZ_TRY(cuda_status(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceMapHost), "the GPU's flags",
                     "use --device cpu"));
  BZ_TRY(cuda_status(cudaFree(nullptr), "the GPU's context", "use --device cpu"));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, prop));
}

}  // namespace bz::device::cuda
