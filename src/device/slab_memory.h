// SlabMemory: the bytes of every block of the cache, one slab per block id, with block 0 protected by hardware.
//
//   | unmapped granule | guard granules, hold block 0 | block 1 ... block N-1 | unmapped granule |
//
// Block 1 starts on a protection boundary; the granules below it are their own allocation. Block 0 has a second,
// read-only mapping that the PAD-8 check reads in every mode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bz::device {

enum class NullGuard {
  kOff,       // block 0 is ordinary memory: re-zeroed after capture, checked by its bytes
  kReadOnly,  // a write to block 0, to slot -1 or past the end faults
  kHard,      // even a read of block 0 faults
};
std::string_view null_guard_name(NullGuard guard);

struct SlabRequest {
  int64_t block_stride = 0;  // bytes, a multiple of 128
  int64_t num_blocks = 0;    // including block 0
  NullGuard guard = NullGuard::kReadOnly;
};

class SlabMemory {
 public:
  virtual ~SlabMemory() = default;
  // The device address of block 0: address of a byte = base() + id * block_stride + offset (KV-5).
  virtual std::byte* base() const = 0;
  // Block 0's bytes through the second mapping: all zero? Works in every guard mode (PAD-8).
  virtual bool null_block_is_zero() const = 0;
  // Zeroes block 0. Does something in mode off only: elsewhere nothing can have written it.
  virtual void rezero_null_block() = 0;
  // The canary between the last block and the end of the mapping is whole (true where there is no such gap).
  virtual bool canary_intact() const = 0;

  const SlabRequest& request() const { return request_; }

 protected:
  explicit SlabMemory(const SlabRequest& request) : request_(request) {}
  SlabRequest request_;
};

}  // namespace bz::device
