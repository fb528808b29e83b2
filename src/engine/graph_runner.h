// GraphRunner: runs steps. run(StepPlan) is the only entry: real, padded, dummy, change and warm-up steps differ in
// their plan only, and nothing is launched that was not staged (StagedStep). Owns the step path's memory and the
// graphs.
//
// One thread. A step's results are read with wait(), in order; at most StepInputs::kRingSlots steps are in flight
// (HOST-1).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/math.h"
#include "base/status.h"
#include "device/device.h"
#include "engine/step_inputs.h"
#include "engine/step_memory.h"
#include "engine/step_plan.h"
#include "kv/cache_manager.h"
#include "kv/layout.h"
#include "models/model.h"
#include "ops/op_table.h"

namespace bz::engine {

struct RunnerConfig {
  StepLimits limits;
  GraphMode mode = GraphMode::kFull;
  kv::CacheConfig cache;  // the manager's: the device's tables have the same shapes
  device::NullGuard null_guard = device::NullGuard::kReadOnly;
};

struct StepResult {
  ops::StepError error = ops::StepError::kNone;
  GraphKey key;
  // In plan order; valid until the next wait().
  std::span<const ops::RowResult> rows;          // of the live batch rows, samples_per_row each
  std::span<const int32_t> logits_ends;          // of each row, in `logprobs`: rows may have had fewer than planned
  std::span<const ops::LogprobResult> logprobs;  // of the logits rows; empty unless the sampler was SamplerClass::kFull
};

struct RunnerStats {
  int64_t steps = 0;
  int64_t dummy_steps = 0;  // plans without rows
  int64_t padded_rows = 0;  // batch rows that named the null row
  int64_t padded_tokens = 0;
  int64_t captures = 0;
  int64_t steps_without_graph = 0;  // ops enqueued one by one, by choice or for want of a graph
  std::map<GraphKey, int64_t> steps_by_key;
};

class GraphRunner {
 public:
  // Chooses the cache's layout; called once everything else is allocated, so that it can ask what the device has left.
  using ChooseLayout = std::function<Result<kv::Layout>()>;
  // The device, the op table and the model outlive the runner. Allocates everything (ENG-3), the cache last. The
  // layout's groups are those of config.cache, its number of blocks becomes config().cache's.
  static Result<std::unique_ptr<GraphRunner>> create(device::Device& device, const ops::OpTable& ops,
                                                     models::Model& model, const ChooseLayout& choose_layout,
                                                     const RunnerConfig& config);
  static Result<std::unique_ptr<GraphRunner>> create(device::Device& device, const ops::OpTable& ops,
                                                     models::Model& model, const kv::Layout& layout,
                                                     const RunnerConfig& config);

  // Stages and enqueues one step. Captures its graph first if it is a new one, unless that was deferred: then, and
  // where a capture failed, the step's ops are enqueued one by one, which is said once and counted. In mode auto a
  // mixed size is deferred when it comes up the second time: most come once, and a capture takes longer than a step.
  void run(const StepPlan& plan);
  // Waits for a step and reads its results. REQUIRES: steps are waited for in the order they were run.
  StepResult wait(uint64_t sequence);

  // Stages a step and runs its prepare alone, for whoever looks at what it derives (a fault's replay). The step counts
  // as run and read.
  ops::StepView derive(const StepPlan& plan);

  // Records the forward of a key unless it is there. A capture takes neither a staging slot nor a sequence number, and
  // may stand between steps that run.
  Status capture(const GraphKey& key);
  // Leaves a key to capture_deferred(): run() does not capture it.
  void defer_capture(const GraphKey& key) { deferred_.insert(key); }
  bool has_deferred_captures() const { return !deferred_.empty(); }
  // Records the smallest deferred key. False: there is none.
  bool capture_deferred();

  const RunnerConfig& config() const { return config_; }
  bool runs_beside_host() const { return device_.kind() == device::DeviceKind::kCuda; }
  GraphLimits graph_limits() const { return {config_.mode, config_.limits.max_tokens, config_.limits.max_rows}; }
  const RunnerStats& stats() const { return stats_; }
  // How long steps run on the device and how long it idles between them (device/stream.h).
  void measure_steps() { stream_->measure_steps(); }
  device::StepTimes step_times() const { return stream_->step_times(); }
  device::SlabMemory& slabs() { return *slabs_; }
  const device::SlabMemory& slabs() const { return *slabs_; }

  // For checks and scoring, between wait() and the next run(): what prepare derived, and the logits [L, V] on the
  // device.
  ops::StepView view(const GraphKey& key) const { return memory_.view(key); }
  const StepMemory& memory() const { return memory_; }
  ops::TensorRef logits(const GraphKey& key) const;

 private:
  friend struct GraphRunnerTestAccess;  // replays a forward without staging, to show what a graph is

  using SamplerKey = std::pair<GraphKey, ops::SamplerClass>;

  GraphRunner(device::Device& device, const ops::OpTable& ops, models::Model& model, const RunnerConfig& config,
              StepInputs inputs, StepMemory memory);
  Status allocate_buffers();
  Status allocate_cache(const kv::Layout& layout);

  // A forward as it was recorded: graphs, and between one and the next an attention that stayed outside.
  struct CapturedForward {
    struct Outside {
      ops::AttentionParams params;
      int32_t layer;
    };
    std::vector<std::unique_ptr<device::Graph>> pieces;
    std::vector<Outside> attention;  // [pieces - 1]
  };
  class PieceRecorder;

  // The ops of a step, enqueued on the stream: recorded during a capture, run otherwise. One code for both.
  void enqueue_copies();
  void enqueue_forward(const GraphKey& key, models::AttentionOutside* outside = nullptr);
  void enqueue_sample(const GraphKey& key, ops::SamplerClass sampler);
  void enqueue_adjusted_sample(const GraphKey& key, ops::SampleParams sample);
  void enqueue_draft(const GraphKey& key);
  Result<CapturedForward> capture_forward(const GraphKey& key);
  Status capture_copies();
  Status capture_sampler(const SamplerKey& key);
  // What a step replays.
  struct StepGraphs {
    const CapturedForward* forward = nullptr;  // null: its ops are enqueued one by one
    const device::Graph* sampler = nullptr;
  };
  // May the step be replayed? Captures what run() is to capture.
  bool has_graphs(const SamplerKey& key);
  StepGraphs find_graphs(const SamplerKey& key);
  void launch(const CapturedForward& forward);
  void execute(StagedStep step, const StepGraphs& graphs);

  device::Device& device_;
  const ops::OpTable& ops_;
  models::Model& model_;
  RunnerConfig config_;
  StepInputs inputs_;
  StepMemory memory_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::SlabMemory> slabs_;
  std::vector<ops::KvLayer> kv_layers_;
  std::vector<int32_t> kv_groups_;
  device::Buffer logits_;
  device::Buffer adjusted_;                    // f32 [max rows, V]
  device::Buffer sample_scratch_;              // of adjust_logits, then of sample
  std::unique_ptr<device::Graph> copy_graph_;  // run ahead of the steps whose plan has copies
  std::map<GraphKey, CapturedForward> forward_graphs_;
  std::map<SamplerKey, std::unique_ptr<device::Graph>> sampler_graphs_;
  std::set<GraphKey> deferred_;
  std::set<GraphKey> without_graph_;              // deferred or failed, and said
  std::map<GraphKey, int64_t> auto_uses_;         // mode auto: of mixed sizes without a graph
  SamplerKey in_flight_[StepInputs::kRingSlots];  // by sequence
  // Of the step before: most steps repeat it, and the maps above cost microseconds when they are not in a cache.
  struct LastStep {
    SamplerKey key;
    StepGraphs graphs;
    int64_t* count = nullptr;  // in stats_.steps_by_key
  } last_;
  RunnerStats stats_;
};

}  // namespace bz::engine
