#include "device/cpu/cpu_slabs.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/math.h"
#include "device/cpu/fault_handler.h"

namespace bz::device::cpu {
namespace {

constexpr std::byte kCanary{0xC5};

int64_t physical_memory_bytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

class CpuSlabs final : public SlabMemory {
 public:
  explicit CpuSlabs(const SlabRequest& request) : SlabMemory(request) {
    guard_bytes_ = round_up(request.block_stride, kCpuGranule);
    live_bytes_ = (request.num_blocks - 1) * request.block_stride;
    mapped_bytes_ = round_up(live_bytes_, kCpuGranule);
    // A stray entry lands at most one slab below block 0 or past the end: both sides stay unmapped that far.
    unmapped_bytes_ = guard_bytes_ + kCpuGranule;
    reserved_bytes_ = unmapped_bytes_ + guard_bytes_ + mapped_bytes_ + unmapped_bytes_;
  }

  ~CpuSlabs() override {
    if (reserved_ != nullptr) {
      unregister_guarded_range(reserved_);
      munmap(reserved_, static_cast<size_t>(reserved_bytes_));
    }
    if (second_view_ != nullptr) munmap(second_view_, static_cast<size_t>(guard_bytes_));
    if (memfd_ >= 0) close(memfd_);
  }

  // False with errno set when a system call fails; what was mapped is released by the destructor.
  bool map() {
    void* reserved = mmap(nullptr, static_cast<size_t>(reserved_bytes_), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return false;
    reserved_ = static_cast<std::byte*>(reserved);
    memfd_ = memfd_create("blockzero-null-block", MFD_CLOEXEC);
    if (memfd_ < 0 || ftruncate(memfd_, guard_bytes_) != 0) return false;
    if (mmap(guard_begin(), static_cast<size_t>(guard_bytes_), guard_protection(), MAP_SHARED | MAP_FIXED, memfd_, 0) ==
        MAP_FAILED) {
      return false;
    }
    void* view = mmap(nullptr, static_cast<size_t>(guard_bytes_), PROT_READ, MAP_SHARED, memfd_, 0);
    if (view == MAP_FAILED) return false;
    second_view_ = static_cast<std::byte*>(view);
    if (mprotect(live_begin(), static_cast<size_t>(mapped_bytes_), PROT_READ | PROT_WRITE) != 0) return false;
    if (mapped_bytes_ > live_bytes_) {
      std::memset(live_begin() + live_bytes_, static_cast<int>(kCanary),
                  static_cast<size_t>(mapped_bytes_ - live_bytes_));
    }
    register_guarded_range(
        {reserved_, reserved_ + reserved_bytes_, base(), request_.block_stride, request_.num_blocks});
    return true;
  }

  std::byte* base() const override { return live_begin() - request_.block_stride; }

  bool null_block_is_zero() const override {
    const std::byte* begin = second_view_ + (guard_bytes_ - request_.block_stride);
    return std::all_of(begin, begin + request_.block_stride, [](std::byte b) { return b == std::byte{0}; });
  }

  void rezero_null_block() override {
    if (request_.guard == NullGuard::kOff) std::memset(base(), 0, static_cast<size_t>(request_.block_stride));
  }

  bool canary_intact() const override {
    return std::all_of(live_begin() + live_bytes_, live_begin() + mapped_bytes_,
                       [](std::byte b) { return b == kCanary; });
  }

 private:
  std::byte* guard_begin() const { return reserved_ + unmapped_bytes_; }
  std::byte* live_begin() const { return guard_begin() + guard_bytes_; }  // block 1, on a protection boundary
  int guard_protection() const {
    switch (request_.guard) {
      case NullGuard::kOff: return PROT_READ | PROT_WRITE;
      case NullGuard::kReadOnly: return PROT_READ;
      case NullGuard::kHard: return PROT_NONE;
    }
    return PROT_NONE;
  }

  int64_t guard_bytes_ = 0;
  int64_t live_bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  int64_t unmapped_bytes_ = 0;
  int64_t reserved_bytes_ = 0;
  std::byte* reserved_ = nullptr;
  std::byte* second_view_ = nullptr;
  int memfd_ = -1;
};

}  // namespace

Result<std::unique_ptr<SlabMemory>> create_cpu_slabs(const SlabRequest& request) {
  BZ_CHECK_GT(request.block_stride, 0);
  BZ_CHECK_EQ(request.block_stride % 128, 0);
  BZ_CHECK_GE(request.num_blocks, 2);
  const int64_t total = request.block_stride * request.num_blocks;
  if (total > physical_memory_bytes()) {
    return resource_exhausted("a cache of {} bytes does not fit in this machine's {} bytes of memory", total,
                              physical_memory_bytes());
  }
  auto slabs = std::make_unique<CpuSlabs>(request);
  if (!slabs->map()) {
    return resource_exhausted("the cache of {} blocks of {} bytes cannot be mapped: {}", request.num_blocks,
                              request.block_stride, std::strerror(errno));
  }
  return std::unique_ptr<SlabMemory>(std::move(slabs));
}

}  // namespace bz::device::cpu
