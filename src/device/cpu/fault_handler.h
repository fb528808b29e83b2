// Names the op behind a memory fault. A fault inside a slab mapping is a guard fault: a write to the null block, to
// slot -1 or past the last block. It is fail-stop: one line naming op, layer and step, then exit 1 (design: the guard).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bz::device::cpu {

// What this thread runs now, for the handler. Nests.
class FaultScope {
 public:
  FaultScope(const char* op, int32_t layer, uint64_t step);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

 private:
  friend struct FaultHandlerAccess;
  const char* op_;
  int32_t layer_;
  uint64_t step_;
  const FaultScope* outer_;
};

// Addresses of one slab mapping, for telling a guard fault from any other.
struct GuardedRange {
  const std::byte* reserved_begin;  // with the unmapped granules on both sides
  const std::byte* reserved_end;
  const std::byte* base;  // of block 0
  int64_t block_stride;
  int64_t num_blocks;
};

// Registers a range (installing the handler with the first) and removes it again. Thread-safe.
void register_guarded_range(const GuardedRange& range);
void unregister_guarded_range(const std::byte* reserved_begin);

}  // namespace bz::device::cpu
