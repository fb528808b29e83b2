// ShadowModel: what stands for a model in the simulation. Its forward is one op that keeps in the slabs, for every slot
// of every group, what a real cache would hold there: a hash of the request's tokens up to that position. Equal
// prefixes are equal contents and anything else is different, so a step that reads another request's entry, one that
// was overwritten or one that was never written is found at once, as is a token, position or slot that prepare derived
// wrongly.
//
// A row of the batch is known by its sampling seed, which is the request's own in the simulation.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/spec.h"
#include "models/model.h"
#include "sim/traffic.h"

namespace bz::sim {

class ShadowModel final : public models::Model {
 public:
  ShadowModel(std::vector<kv::GroupSpec> groups, int32_t vocab_size, int32_t max_model_len);

  // What prepare says of how the batch rows sample, and the slabs, whose bytes block copies move (KV-6). Before the
  // first step.
  void set_memory(const ops::SampleParams& sample, const device::SlabMemory& slabs) {
    sampling_ = sample.sampling;
    sample_row_ = sample.sample_row;
    slabs_ = &slabs;
  }
  // A request that may run from now on. Until forget() its rows are known by its seed.
  void expect(std::shared_ptr<const Client> client);
  void forget(uint64_t seed) { requests_.erase(seed); }
  // What went wrong first; empty: nothing so far.
  const std::string& error() const { return error_; }

  int32_t vocab_size() const override { return vocab_size_; }
  int32_t max_model_len() const override { return max_model_len_; }
  std::vector<kv::LayerSpec> cache_specs() const override { return std::vector<kv::LayerSpec>(groups_.size()); }
  ops::KvLayer kv_layer(int32_t) const override { return {}; }
  Status reserve(device::Device&, const ops::OpTable&, int32_t, int32_t) override { return ok_status(); }
  void forward(const models::ForwardContext& ctx) override;
  int64_t weight_bytes() const override { return 0; }

 private:
  struct Known {
    std::shared_ptr<const Client> client;
    std::vector<uint64_t> contents;  // beside each of its tokens the hash of all up to it
    const std::vector<int32_t>& tokens() const { return client->tokens(); }
  };
  // One live batch row of the step that runs.
  struct Row {
    kv::RowId table_row;
    int32_t first_token;  // index into the step's tokens
    int32_t start;        // position of that token
    int32_t end;          // the row's length after the step
    int32_t known_end;    // from here on its tokens are drafts that will be rejected
    const Known* known;
  };

  void run(const ops::StepView& view);
  void check_padding(const ops::StepView& view, int32_t num_rows, int32_t num_tokens);
  void run_row(const ops::StepView& view, int32_t b);
  void run_group(const ops::GroupStep& group, const kv::GroupSpec& spec, const Row& row);
  void write(const ops::GroupStep& group, const kv::GroupSpec& spec, const Row& row);
  void run_state(const kv::GroupView& g, const Row& row);
  void check_reads(const kv::GroupView& g, const kv::GroupSpec& spec, const Row& row, int32_t position);
  void expect_entry(const kv::GroupView& g, const Row& row, int32_t entry, int32_t position);
  uint64_t& cell(kv::GroupId group, int32_t block, int32_t offset);
  template <class... Args>
  void fail(fmt::format_string<Args...> f, Args&&... args) {
    if (error_.empty()) error_ = fmt::format(f, std::forward<Args>(args)...);
  }

  std::vector<kv::GroupSpec> groups_;
  int32_t vocab_size_;
  int32_t max_model_len_;
  const ops::RowSampling* sampling_ = nullptr;
  const int32_t* sample_row_ = nullptr;
  const device::SlabMemory* slabs_ = nullptr;
  std::unordered_map<uint64_t, Known> requests_;
  std::string error_;
};

}  // namespace bz::sim
