#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdlib>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_archs.h"
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
  std::optional<int64_t> free_bytes() const override {
    use();
    size_t free = 0, total = 0;
    BZ_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CudaStream>(index_); }

  Result<Buffer> allocate(size_t bytes) override {
    use();
    void* data = nullptr;
    const size_t size = bytes == 0 ? 1 : bytes;
    BZ_TRY(cuda_status(cudaMalloc(&data, size), fmt::format("{} bytes on cuda:{}", bytes, index_).c_str(), ""));
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
    // From pageable memory it returns once the bytes are staged; the engine's stream does not wait for the rest.
    BZ_CUDA_CHECK(cudaStreamSynchronize(nullptr));
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

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(int index) {
  // All kernels now, while there is memory: one loaded at its first launch would find what the cache has left.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return invalid_argument("--device cuda:{}: no usable NVIDIA driver or GPU on this machine ({}); use --device cpu",
                            index, cudaGetErrorString(error));
  }
  if (index < 0 || index >= count) {
    return invalid_argument("--device cuda:{}: this machine has {} GPU{}; use cuda:0 to cuda:{}", index, count,
                            count == 1 ? "" : "s", count - 1);
  }
  cudaDeviceProp prop{};
  BZ_TRY(cuda_status(cudaGetDeviceProperties(&prop, index), "the GPU's properties", "use --device cpu"));
  if (!has_code_for(BZ_CUDA_ARCHS, prop.major, prop.minor)) {
    return invalid_argument(
        "--device cuda:{}: {} is sm_{}{}, this build has code for {} alone; build with ./dev build --arch all, or use "
        "--device cpu",
        index, prop.name, prop.major, prop.minor, BZ_CUDA_ARCHS);
  }
  // Spinning costs a core while a step runs and saves microseconds at its end.
  BZ_TRY(cuda_status(cudaSetDevice(index), "the GPU", "use --device cpu"));
  BZ_TRY(cuda_status(cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceMapHost), "the GPU's flags",
                     "use --device cpu"));
  BZ_TRY(cuda_status(cudaFree(nullptr), "the GPU's context", "use --device cpu"));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, prop));
}

}  // namespace bz::device::cuda
