#include "engine/step_memory.h"

#include <algorithm>

#include "base/math.h"

namespace bz::engine {
// Hands out consecutive pieces of one buffer, each on its own cache lines. Without a base it only measures.
class StepMemory::Carver {
 public:
  explicit Carver(std::byte* base = nullptr) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    const size_t offset = used_;
    used_ = round_up(offset + static_cast<size_t>(count) * sizeof(T), size_t{128});
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

StepMemory::Arrays StepMemory::carve_arrays(const StepMemoryConfig& config, Carver& carver) {
  const int64_t rows = config.limits.max_rows;
  const int64_t tokens = config.limits.max_tokens;
  const int64_t table_rows = config.num_table_rows;
  Arrays a{};
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const int32_t owner = config.groups[g].spec.table_of;
    if (owner == kv::kOwnTable) {
      a.groups[g].table = carver.take<kv::BlockId>(table_rows * config.groups[g].max_columns);
      a.groups[g].width = carver.take<int32_t>(table_rows);
      a.groups[g].first = carver.take<int32_t>(table_rows);
    } else {  // groups that own tables come first
      a.groups[g] = a.groups[owner];
    }
    a.groups[g].slots = carver.take<kv::SlotId>(tokens);
    a.groups[g].first_visible = carver.take<int32_t>(rows);
    a.groups[g].states = carver.take<kv::StateId>(rows * (1 + config.num_spec));
    a.groups[g].attention = {carver.take<ops::AttentionToken>(ops::kNumAttentionClasses * tokens),
                             carver.take<ops::AttentionCounts>(1)};
  }
  a.row_state = carver.take<ops::RowState>(table_rows);
  a.drafts = carver.take<ops::RowDraft>(table_rows);
  a.history = {carver.take<int32_t>(table_rows * config.max_seq_len), config.max_seq_len};
  a.step_count = carver.take<uint64_t>(1);
  a.error_state = carver.take<ops::StepResultHeader>(1);
  a.num_valid_rows = carver.take<kv::NumValidRows>(1);
  a.num_valid_tokens = carver.take<kv::NumValidTokens>(1);
  a.num_valid_logits = carver.take<ops::NumValidLogits>(1);
  a.token_ids = carver.take<int32_t>(tokens);
  a.positions = carver.take<int32_t>(tokens);
  a.token_row = carver.take<int32_t>(tokens);
  a.row_index = carver.take<int32_t>(rows);
  a.query_start = carver.take<int32_t>(rows + 1);
  a.seq_len = carver.take<int32_t>(rows);
  a.logits_start = carver.take<int32_t>(rows + 1);
  a.logits_token = carver.take<int32_t>(std::max(rows, tokens));
  a.sampling = carver.take<ops::RowSampling>(rows);
  a.sample_row = carver.take<int32_t>(rows);
  a.next_token = carver.take<int32_t>(rows);
  return a;
}

StepMemory::ResultArrays StepMemory::carve_results(const StepMemoryConfig& config, Carver& carver) {
  ResultArrays r{};
  for (int i = 0; i < StepInputs::kRingSlots; ++i) {
    r.headers[i] = carver.take<ops::StepResultHeader>(1);
    r.rows[i] = carver.take<ops::RowResult>(int64_t{config.limits.max_rows} * (1 + config.num_spec));
    r.logits_ends[i] = carver.take<int32_t>(config.limits.max_rows);
    r.logprobs[i] = carver.take<ops::LogprobResult>(std::max(config.limits.max_rows, config.limits.max_tokens));
  }
  return r;
}

Result<StepMemory> StepMemory::create(device::Device& device, const StepMemoryConfig& config) {
  BZ_CHECK_GE(config.num_table_rows, 2);
  BZ_CHECK_LE(config.groups.size(), static_cast<size_t>(kv::kMaxGroups));
  Carver device_size;
  carve_arrays(config, device_size);
  Carver result_size;
  carve_results(config, result_size);
  StepMemory m;
  m.config_ = config;
  BZ_ASSIGN(m.device_memory_, device.allocate(device_size.used()));
  BZ_ASSIGN(m.result_memory_, device.allocate_host_mapped(result_size.used()));
  Carver device_carver(m.device_memory_.device());
  m.arrays_ = carve_arrays(config, device_carver);
  Carver result_carver(m.result_memory_.device());
  m.results_ = carve_results(config, result_carver);
  return m;
}

ops::StepView StepMemory::view(const GraphKey& key) const {
  ops::StepView v{};
  v.padded_rows = key.rows;
  v.padded_tokens = key.tokens;
  v.padded_logits = key.logits;
  v.num_groups = static_cast<int32_t>(config_.groups.size());
  v.states_per_row = v.samples_per_row = 1 + config_.num_spec;
  v.num_valid_rows = arrays_.num_valid_rows;
  v.num_valid_tokens = arrays_.num_valid_tokens;
  v.num_valid_logits = arrays_.num_valid_logits;
  v.token_ids = arrays_.token_ids;
  v.positions = arrays_.positions;
  v.token_row = arrays_.token_row;
  v.row_index = arrays_.row_index;
  v.query_start = arrays_.query_start;
  v.seq_len = arrays_.seq_len;
  v.logits_start = arrays_.logits_start;
  v.logits_token = arrays_.logits_token;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const Group& arrays = arrays_.groups[g];
    v.groups[g].view = kv::view_of(config_.groups[g], kv::GroupId(static_cast<int32_t>(g)), config_.num_table_rows,
                                   arrays.table, arrays.width, arrays.first);
    v.groups[g].slots = arrays.slots;
    v.groups[g].first_visible = arrays.first_visible;
    v.groups[g].states = arrays.states;
    v.groups[g].attention = arrays.attention;
  }
  return v;
}

namespace {

void set_ring(ops::StagedSlot (&ring)[StepInputs::kRingSlots], const StepInputs& inputs) {
  for (int i = 0; i < StepInputs::kRingSlots; ++i) ring[i] = inputs.device_slot(i);
}

}  // namespace

ops::PrepareParams StepMemory::prepare_params(const GraphKey& key, const StepInputs& inputs) const {
  ops::PrepareParams p{};
  set_ring(p.ring, inputs);
  p.step_count = arrays_.step_count;
  p.row_state = arrays_.row_state;
  p.drafts = arrays_.drafts;
  p.history = arrays_.history;
  p.num_table_rows = config_.num_table_rows;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    p.tables[g] = arrays_.groups[g].table;
    p.widths[g] = arrays_.groups[g].width;
    p.firsts[g] = arrays_.groups[g].first;
  }
  p.view = view(key);
  p.sampling = arrays_.sampling;
  p.sample_row = arrays_.sample_row;
  p.next_token = arrays_.next_token;
  p.error_state = arrays_.error_state;
  return p;
}

ops::CopyBlocksParams StepMemory::copy_blocks_params(const StepInputs& inputs) const {
  ops::CopyBlocksParams p{};
  set_ring(p.ring, inputs);
  p.step_count = arrays_.step_count;
  return p;
}

ops::AdjustLogitsParams StepMemory::adjust_logits_params(const GraphKey& key, const StepInputs& inputs) const {
  ops::AdjustLogitsParams p{};
  p.view = view(key);
  p.sampling = arrays_.sampling;
  p.sample_row = arrays_.sample_row;
  p.history = arrays_.history;
  p.step_count = arrays_.step_count;
  set_ring(p.ring, inputs);
  return p;
}

ops::SampleParams StepMemory::sample_params(const GraphKey& key) const {
  ops::SampleParams p{};
  p.sampling = arrays_.sampling;
  p.sample_row = arrays_.sample_row;
  p.view = view(key);
  p.row_state = arrays_.row_state;
  p.history = arrays_.history;
  p.step_count = arrays_.step_count;
  p.error_state = arrays_.error_state;
  for (int i = 0; i < StepInputs::kRingSlots; ++i) {
    p.result_headers[i] = results_.headers[i];
    p.results[i] = results_.rows[i];
    p.logits_ends[i] = results_.logits_ends[i];
  }
  return p;
}

ops::DraftParams StepMemory::draft_params(const GraphKey& key) const {
  ops::DraftParams p{};
  p.view = view(key);
  p.sample_row = arrays_.sample_row;
  p.sampling = arrays_.sampling;
  p.row_state = arrays_.row_state;
  p.history = arrays_.history;
  p.drafts = arrays_.drafts;
  p.max_tokens = config_.num_spec;
  return p;
}

ops::LogprobsParams StepMemory::logprobs_params(const GraphKey& key) const {
  ops::LogprobsParams p{};
  p.sampling = arrays_.sampling;
  p.sample_row = arrays_.sample_row;
  p.next_token = arrays_.next_token;
  p.view = view(key);
  p.step_count = arrays_.step_count;
  for (int i = 0; i < StepInputs::kRingSlots; ++i) {
    p.results[i] = results_.rows[i];
    p.logprob_results[i] = results_.logprobs[i];
  }
  return p;
}

const ops::StepResultHeader& StepMemory::result_header(uint64_t sequence) const {
  return *host_of(results_.headers[(sequence - 1) % StepInputs::kRingSlots]);
}

std::span<const ops::RowResult> StepMemory::results(uint64_t sequence, int32_t rows) const {
  const auto per_row = 1 + static_cast<size_t>(config_.num_spec);
  return {host_of(results_.rows[(sequence - 1) % StepInputs::kRingSlots]), static_cast<size_t>(rows) * per_row};
}

std::span<const int32_t> StepMemory::logits_ends(uint64_t sequence, int32_t rows) const {
  return {host_of(results_.logits_ends[(sequence - 1) % StepInputs::kRingSlots]), static_cast<size_t>(rows)};
}

std::span<const ops::LogprobResult> StepMemory::logprobs(uint64_t sequence, int32_t logits_rows) const {
  return {host_of(results_.logprobs[(sequence - 1) % StepInputs::kRingSlots]), static_cast<size_t>(logits_rows)};
}

}  // namespace bz::engine
