#include "device/cuda/cuda_slabs.h"

#include <algorithm>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/math.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/cuda_driver.h"

namespace bz::device::cuda {
namespace {

constexpr std::byte kCanary{0xC5};

bool all_equal(const std::byte* device_bytes, int64_t count, std::byte value) {
  std::vector<std::byte> host(static_cast<size_t>(count));
  BZ_CUDA_CHECK(cudaMemcpy(host.data(), device_bytes, host.size(), cudaMemcpyDeviceToHost));
  return std::all_of(host.begin(), host.end(), [&](std::byte b) { return b == value; });
}

class CudaSlabs final : public SlabMemory {
 public:
  CudaSlabs(int device_index, const DriverCalls* driver, const SlabRequest& request)
      : SlabMemory(request), driver_(*driver) {
    prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop_.location.id = device_index;
  }

  ~CudaSlabs() override {
    if (view_mapped_) driver_.unmap(view_, guard_size());
    if (view_ != 0) driver_.free_address(view_, guard_size());
    if (guard_mapped_) driver_.unmap(guard_begin(), guard_size());
    if (live_mapped_) driver_.unmap(live_begin(), static_cast<size_t>(mapped_bytes_));
    if (reserved_ != 0) driver_.free_address(reserved_, static_cast<size_t>(reserved_bytes_));
    if (guard_handle_ != 0) driver_.release(guard_handle_);
    if (live_handle_ != 0) driver_.release(live_handle_);
  }

  // What was mapped before a failure is released by the destructor.
  Status map() {
    size_t granule = 0;
    BZ_TRY(tried(driver_.granularity(&granule, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM)));
    const auto granule_bytes = static_cast<int64_t>(granule);
    guard_bytes_ = round_up(request_.block_stride, granule_bytes);
    live_bytes_ = (request_.num_blocks - 1) * request_.block_stride;
    mapped_bytes_ = round_up(live_bytes_, granule_bytes);
    // A stray entry lands at most one slab below block 0 or past the end: both sides stay unmapped that far.
    unmapped_bytes_ = guard_bytes_ + granule_bytes;
    reserved_bytes_ = unmapped_bytes_ + guard_bytes_ + mapped_bytes_ + unmapped_bytes_;
    BZ_TRY(tried(driver_.reserve(&reserved_, static_cast<size_t>(reserved_bytes_), granule, 0, 0)));
    BZ_TRY(map_guard());
    BZ_TRY(tried(driver_.create(&live_handle_, static_cast<size_t>(mapped_bytes_), &prop_, 0)));
    BZ_TRY(tried(driver_.map(live_begin(), static_cast<size_t>(mapped_bytes_), 0, live_handle_, 0)));
    live_mapped_ = true;
    BZ_TRY(protect(live_begin(), mapped_bytes_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    auto* live = reinterpret_cast<std::byte*>(live_begin());
    BZ_CUDA_CHECK(cudaMemset(live, 0, static_cast<size_t>(live_bytes_)));
    BZ_CUDA_CHECK(
        cudaMemset(live + live_bytes_, static_cast<int>(kCanary), static_cast<size_t>(mapped_bytes_ - live_bytes_)));
    BZ_CUDA_CHECK(cudaDeviceSynchronize());
    return ok_status();
  }

  std::byte* base() const override {
    return reinterpret_cast<std::byte*>(live_begin() - static_cast<CUdeviceptr>(request_.block_stride));
  }

  bool null_block_is_zero() const override {
    const auto* end = reinterpret_cast<const std::byte*>(view_ + guard_size());
    return all_equal(end - request_.block_stride, request_.block_stride, std::byte{0});
  }

  void rezero_null_block() override {
    if (request_.guard != NullGuard::kOff) return;
    BZ_CUDA_CHECK(cudaMemset(base(), 0, static_cast<size_t>(request_.block_stride)));
  }

  bool canary_intact() const override {
    const auto* tail = reinterpret_cast<const std::byte*>(live_begin()) + live_bytes_;
    return all_equal(tail, mapped_bytes_ - live_bytes_, kCanary);
  }

 private:
  // The guard's granules are a handle of their own: access is set per handle, not per part of one. The second mapping
  // zeroes them before it becomes read-only.
  Status map_guard() {
    BZ_TRY(tried(driver_.create(&guard_handle_, guard_size(), &prop_, 0)));
    BZ_TRY(tried(driver_.reserve(&view_, guard_size(), 0, 0, 0)));
    BZ_TRY(tried(driver_.map(view_, guard_size(), 0, guard_handle_, 0)));
    view_mapped_ = true;
    BZ_TRY(protect(view_, guard_bytes_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    BZ_CUDA_CHECK(cudaMemset(reinterpret_cast<void*>(view_), 0, guard_size()));
    BZ_CUDA_CHECK(cudaDeviceSynchronize());
    BZ_TRY(protect(view_, guard_bytes_, CU_MEM_ACCESS_FLAGS_PROT_READ));
    BZ_TRY(tried(driver_.map(guard_begin(), guard_size(), 0, guard_handle_, 0)));
    guard_mapped_ = true;
    return protect(guard_begin(), guard_bytes_, guard_access());
  }

  CUmemAccess_flags guard_access() const {
    switch (request_.guard) {
      case NullGuard::kOff: return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      case NullGuard::kReadOnly: return CU_MEM_ACCESS_FLAGS_PROT_READ;
      case NullGuard::kHard: return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    }
    return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }

  Status protect(CUdeviceptr address, int64_t bytes, CUmemAccess_flags flags) {
    CUmemAccessDesc access{};
    access.location = prop_.location;
    access.flags = flags;
    return tried(driver_.set_access(address, static_cast<size_t>(bytes), &access, 1));
  }

  Status tried(CUresult result) const {
    if (result == CUDA_SUCCESS) return ok_status();
    const char* text = "unknown error";
    driver_.error_string(result, &text);
    return resource_exhausted("the cache of {} blocks of {} bytes, {} in all, cannot be mapped: {}",
                              request_.num_blocks, request_.block_stride, request_.num_blocks * request_.block_stride,
                              text);
  }

  CUdeviceptr guard_begin() const { return reserved_ + static_cast<CUdeviceptr>(unmapped_bytes_); }
  CUdeviceptr live_begin() const { return guard_begin() + guard_size(); }  // block 1, on a protection boundary
  size_t guard_size() const { return static_cast<size_t>(guard_bytes_); }

  const DriverCalls& driver_;
  CUmemAllocationProp prop_{};
  int64_t guard_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  int64_t unmapped_bytes_ = 0;
  int64_t reserved_bytes_ = 0;
  CUdeviceptr reserved_ = 0;
  CUdeviceptr view_ = 0;  // block 0's second mapping
  CUmemGenericAllocationHandle guard_handle_ = 0;
  CUmemGenericAllocationHandle live_handle_ = 0;
  bool view_mapped_ = false;
  bool guard_mapped_ = false;
  bool live_mapped_ = false;
};

}  // namespace

Result<std::unique_ptr<SlabMemory>> create_cuda_slabs(int device_index, const SlabRequest& request) {
  BZ_CHECK_GT(request.block_stride, 0);
  BZ_CHECK_EQ(request.block_stride % 128, 0);
  BZ_CHECK_GE(request.num_blocks, 2);
  BZ_ASSIGN(const DriverCalls* driver, driver_calls());
  BZ_CUDA_CHECK(cudaSetDevice(device_index));
  auto slabs = std::make_unique<CudaSlabs>(device_index, driver, request);
  BZ_TRY(slabs->map());
  return std::unique_ptr<SlabMemory>(std::move(slabs));
}

}  // namespace bz::device::cuda
