// StepMemory: the device memory of the step path, at addresses that are fixed for life: block tables and RowState
// (which live across steps), the step view (which prepare writes whole each step), and the ring of results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "engine/graph_key.h"
#include "engine/step_inputs.h"
#include "kv/block_table.h"
#include "ops/params.h"

namespace bz::engine {

struct StepMemoryConfig {
  StepLimits limits;
  int32_t num_table_rows = 0;  // with the null row
  int32_t max_seq_len = 0;     // tokens of a row
  int32_t num_spec = 0;        // most drafts of a row in a step: it has 1 + num_spec states and results
  std::vector<kv::TableShape> groups;
};

class StepMemory {
 public:
  static Result<StepMemory> create(device::Device& device, const StepMemoryConfig& config);

  // Parameters of a graph key's ops. The same addresses for every key; the padded sizes differ.
  ops::StepView view(const GraphKey& key) const;
  ops::PrepareParams prepare_params(const GraphKey& key, const StepInputs& inputs) const;
  // Without the slabs, which are the runner's to fill in.
  ops::CopyBlocksParams copy_blocks_params(const StepInputs& inputs) const;
  // Of the sampling ops; where the logits and their scratch lie is the runner's to fill in.
  ops::AdjustLogitsParams adjust_logits_params(const GraphKey& key, const StepInputs& inputs) const;
  ops::SampleParams sample_params(const GraphKey& key) const;
  ops::LogprobsParams logprobs_params(const GraphKey& key) const;
  ops::DraftParams draft_params(const GraphKey& key) const;

  // The results of a step as the host reads them. REQUIRES: the stream has finished that step.
  const ops::StepResultHeader& result_header(uint64_t sequence) const;
  std::span<const ops::RowResult> results(uint64_t sequence, int32_t rows) const;  // [rows][1 + num_spec]
  std::span<const int32_t> logits_ends(uint64_t sequence, int32_t rows) const;
  std::span<const ops::LogprobResult> logprobs(uint64_t sequence, int32_t logits_rows) const;

  // Device addresses of the tables, for checks that read the device's side back.
  const ops::RowState* row_state() const { return arrays_.row_state; }
  int32_t num_table_rows() const { return config_.num_table_rows; }

 private:
  struct Group {
    kv::BlockId* table;
    int32_t* width;
    int32_t* first;
    kv::SlotId* slots;
    int32_t* first_visible;
    kv::StateId* states;
    ops::AttentionLists attention;
  };
  // Device addresses.
  struct Arrays {
    Group groups[kv::kMaxGroups];
    ops::RowState* row_state;
    ops::RowDraft* drafts;
    ops::TokenHistory history;
    uint64_t* step_count;
    ops::StepResultHeader* error_state;
    kv::NumValidRows* num_valid_rows;
    kv::NumValidTokens* num_valid_tokens;
    ops::NumValidLogits* num_valid_logits;
    int32_t* token_ids;
    int32_t* positions;
    int32_t* token_row;
    int32_t* row_index;
    int32_t* query_start;
    int32_t* seq_len;
    int32_t* logits_start;
    int32_t* logits_token;
    ops::RowSampling* sampling;
    int32_t* sample_row;
    int32_t* next_token;
  };
  struct ResultArrays {
    ops::StepResultHeader* headers[StepInputs::kRingSlots];
    ops::RowResult* rows[StepInputs::kRingSlots];
    int32_t* logits_ends[StepInputs::kRingSlots];
    ops::LogprobResult* logprobs[StepInputs::kRingSlots];
  };
  class Carver;
  static Arrays carve_arrays(const StepMemoryConfig& config, Carver& carver);
  static ResultArrays carve_results(const StepMemoryConfig& config, Carver& carver);

  StepMemory() = default;
  // The host's address of something in the results.
  template <class T>
  const T* host_of(const T* device_address) const {
    const auto offset = reinterpret_cast<const std::byte*>(device_address) - result_memory_.device();
    return reinterpret_cast<const T*>(result_memory_.host() + offset);
  }

  StepMemoryConfig config_;
  device::Buffer device_memory_;
  device::Buffer result_memory_;
  Arrays arrays_ = {};
  ResultArrays results_ = {};
};

}  // namespace bz::engine
