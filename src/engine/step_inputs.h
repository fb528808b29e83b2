// StepInputs: the ONE staging path. Writes a StepPlan into a slot of a ring of three host-mapped buffers, over the
// whole extent of the graph's padded sizes: live rows, then null rows to the end (PAD-3, PAD-4).
//
// HOST-1: a slot is rewritten only after the results of the step that used it were read; stage() checks it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "device/device.h"
#include "engine/graph_key.h"
#include "engine/step_plan.h"
#include "ops/params.h"

namespace bz::engine {

struct StepLimits {
  int32_t max_tokens = 0;   // T of the largest graph
  int32_t max_rows = 0;     // R of the largest graph
  int32_t max_changes = 0;  // table changes of one plan
  int32_t max_history = 0;  // ids of one plan for the token history
  int32_t max_biases = 0;   // of one plan
  int32_t max_copies = 0;   // block copies of one plan
};

// Proof that a step was staged: every graph launch and every eager op of a step takes one. Only StepInputs makes it, a
// step uses it once, so a replay restages by construction (fault F10).
class StagedStep {
 public:
  StagedStep(StagedStep&&) = default;
  StagedStep& operator=(StagedStep&&) = delete;
  StagedStep(const StagedStep&) = delete;
  StagedStep& operator=(const StagedStep&) = delete;

  const GraphKey& key() const { return key_; }
  ops::SamplerClass sampler() const { return sampler_; }
  uint64_t sequence() const { return sequence_; }
  bool has_copies() const { return has_copies_; }

 private:
  friend class StepInputs;
  StagedStep(const GraphKey& key, const StepPlan& plan)
      : key_(key),
        sampler_(plan.sampler_class()),
        sequence_(plan.cache.sequence),
        has_copies_(!plan.cache.copies.empty()) {}
  GraphKey key_;
  ops::SamplerClass sampler_;
  uint64_t sequence_;
  bool has_copies_;
};

class StepInputs {
 public:
  static constexpr int kRingSlots = ops::PrepareParams::kRingSlots;

  static Result<StepInputs> create(device::Device& device, const StepLimits& limits);

  // Writes the plan into its slot. REQUIRES: the plan fits the key and the limits; the slot is free (HOST-1).
  StagedStep stage(const StepPlan& plan, const GraphKey& key);
  // The results of this step were read: its slot may be written again.
  void release(uint64_t sequence);

  // Device addresses, fixed for life: what prepare is recorded with.
  ops::StagedSlot device_slot(int index) const;

 private:
  struct Offsets {
    size_t rows, tokens, changes, history, biases, copies, slot_bytes;
  };
  StepInputs(device::Buffer buffer, const StepLimits& limits, const Offsets& offsets)
      : buffer_(std::move(buffer)), limits_(limits), offsets_(offsets) {}

  device::Buffer buffer_;
  StepLimits limits_;
  Offsets offsets_;
  uint64_t last_released_ = 0;
};

}  // namespace bz::engine
