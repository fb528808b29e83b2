// KvSanitizer (--kv-sanitize): a sanitizer for the cache. After each step it recomputes every derived slot, row and
// length from the plan and the host's tables, with its own code: it must not call kv/slot.h, or both would share a
// mistake. Free blocks are filled with NaN bytes, so that whoever reads a former owner's bytes is found (KV-4, PAD-7).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/graph_runner.h"
#include "engine/step_plan.h"
#include "kv/cache_manager.h"

namespace bz::engine {

class KvSanitizer {
 public:
  KvSanitizer(device::Device& device, GraphRunner& runner) : device_(device), runner_(runner) {}

  // Call after wait(): what prepare derived against what it should have.
  void check_step(const StepPlan& plan, const GraphKey& key, const kv::CacheManager& cache);
  // Fills blocks that became free since the last call with NaN bytes.
  void poison_free_blocks(const kv::CacheManager& cache);

  // One line each: step, row or token, what was found, what should be there. Only the first kMaxKept are kept.
  static constexpr size_t kMaxKept = 100;
  const std::vector<std::string>& violations() const { return violations_; }
  int64_t num_violations() const { return num_violations_; }

 private:
  template <class T>
  std::vector<T> fetch(const T* device_array, int64_t count);
  void check_rows(const StepPlan& plan, const ops::StepView& view);
  void check_group(const StepPlan& plan, const ops::StepView& view, int32_t group, const kv::CacheManager& cache);
  static int64_t expected_slot(const kv::CacheManager& cache, kv::GroupId group, kv::RowId row, int32_t position,
                               int32_t seq_end);
  void check_states(const StepPlan& plan, const ops::StepView& view, int32_t group, const kv::CacheManager& cache);
  void check_lists(const StepPlan& plan, const ops::StepView& view, int32_t group, const kv::CacheManager& cache);
  void check_tables(uint64_t step, const ops::GroupStep& group, kv::GroupId id, const kv::CacheManager& cache);
  void report(std::string what);

  device::Device& device_;
  GraphRunner& runner_;
  std::vector<uint8_t> poisoned_;  // [num_blocks]
  std::vector<std::byte> poison_;  // one slab of NaN bytes
  std::vector<std::string> violations_;
  int64_t num_violations_ = 0;
};

}  // namespace bz::engine
