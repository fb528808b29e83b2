#include "engine/graph_runner.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace bz::engine {
namespace {

StepMemoryConfig memory_config(const RunnerConfig& config) {
  return {config.limits, config.cache.max_rows, config.cache.max_seq_len, config.cache.num_spec,
          kv::table_shapes(config.cache)};
}

}  // namespace

Result<std::unique_ptr<GraphRunner>> GraphRunner::create(device::Device& device, const ops::OpTable& ops,
                                                         models::Model& model, const ChooseLayout& choose_layout,
                                                         const RunnerConfig& config) {
  BZ_ASSIGN(StepInputs inputs, StepInputs::create(device, config.limits));
  BZ_ASSIGN(StepMemory memory, StepMemory::create(device, memory_config(config)));
  std::unique_ptr<GraphRunner> runner(
      new GraphRunner(device, ops, model, config, std::move(inputs), std::move(memory)));
  BZ_TRY(runner->allocate_buffers());
  BZ_ASSIGN(const kv::Layout layout, choose_layout());
  BZ_TRY(runner->allocate_cache(layout));
  return runner;
}

Result<std::unique_ptr<GraphRunner>> GraphRunner::create(device::Device& device, const ops::OpTable& ops,
                                                         models::Model& model, const kv::Layout& layout,
                                                         const RunnerConfig& config) {
  return create(device, ops, model, [&layout] { return Result<kv::Layout>(layout); }, config);
}

GraphRunner::GraphRunner(device::Device& device, const ops::OpTable& ops, models::Model& model,
                         const RunnerConfig& config, StepInputs inputs, StepMemory memory)
    : device_(device),
      ops_(ops),
      model_(model),
      config_(config),
      inputs_(std::move(inputs)),
      memory_(std::move(memory)),
      stream_(device.create_stream()) {}

Status GraphRunner::allocate_buffers() {
  const int32_t max_logits = std::max(config_.limits.max_tokens, config_.limits.max_rows);
  const auto vocab = static_cast<size_t>(model_.vocab_size());
  BZ_ASSIGN(logits_, device_.allocate(static_cast<size_t>(max_logits) * vocab * sizeof(float)));
  const size_t per_row = static_cast<size_t>(config_.limits.max_rows) * vocab;
  BZ_ASSIGN(adjusted_, device_.allocate(per_row * sizeof(float)));
  const size_t scratch = ops_.sample_scratch_bytes(config_.limits.max_rows, model_.vocab_size());
  BZ_ASSIGN(sample_scratch_, device_.allocate(std::max(scratch, per_row * sizeof(int32_t))));
  BZ_TRY(model_.reserve(device_, ops_, config_.limits.max_tokens, config_.limits.max_rows));
  model_.prepare_products(*stream_, ops_, step_sizes(graph_limits()));
  return ok_status();
}

Status GraphRunner::allocate_cache(const kv::Layout& layout) {
  config_.cache.num_blocks = layout.num_blocks;
  BZ_ASSIGN(slabs_, device_.create_slabs({layout.block_stride, layout.num_blocks, config_.null_guard}));
  const std::vector<kv::LayerSpec> specs = model_.cache_specs();
  kv_layers_.resize(specs.size());
  kv_groups_.resize(specs.size());
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    for (const kv::LayerPages& pages : layout.groups[g].layers) {
      const auto i = static_cast<size_t>(pages.layer);
      kv_layers_[i] = model_.kv_layer(pages.layer);
      kv_layers_[i].base = slabs_->base();
      kv_layers_[i].k = pages.k;
      kv_layers_[i].v = pages.v;
      kv_groups_[i] = static_cast<int32_t>(g);
    }
  }
  return ok_status();
}

ops::TensorRef GraphRunner::logits(const GraphKey& key) const {
  return ops::tensor_f32(logits_.device(), memory_.view(key).padded_logits, model_.vocab_size());
}

void GraphRunner::enqueue_copies() {
  stream_->set_layer(-1);
  ops::CopyBlocksParams p = memory_.copy_blocks_params(inputs_);
  p.base = slabs_->base();
  p.block_stride = slabs_->request().block_stride;
  p.num_blocks = static_cast<int32_t>(slabs_->request().num_blocks);
  ops_.copy_blocks(*stream_, p);
}

void GraphRunner::enqueue_forward(const GraphKey& key, models::AttentionOutside* outside) {
  const ops::StepView view = memory_.view(key);
  stream_->set_layer(-1);
  ops_.prepare(*stream_, memory_.prepare_params(key, inputs_));
  model_.forward(
      {*stream_, ops_, view, kv_layers_.data(), kv_groups_.data(), view.num_valid_logits, logits(key), outside});
}

void GraphRunner::enqueue_sample(const GraphKey& key, ops::SamplerClass sampler) {
  stream_->set_layer(-1);
  ops::SampleParams sample = memory_.sample_params(key);
  sample.logits = logits(key);
  sample.scratch = sample_scratch_.device();
  sample.scratch_bytes = sample_scratch_.bytes();
  switch (sampler) {
    case ops::SamplerClass::kGreedy: ops_.sample_greedy(*stream_, sample); break;
    case ops::SamplerClass::kRandom: ops_.sample_random(*stream_, sample); break;
    case ops::SamplerClass::kFull: enqueue_adjusted_sample(key, sample); break;
  }
  if (config_.cache.num_spec > 0) enqueue_draft(key);
}

void GraphRunner::enqueue_draft(const GraphKey& key) {
  ops::DraftParams draft = memory_.draft_params(key);
  draft.vocab_size = model_.vocab_size();
  ops_.draft(*stream_, draft);
}

void GraphRunner::enqueue_adjusted_sample(const GraphKey& key, ops::SampleParams sample) {
  ops::AdjustLogitsParams adjust = memory_.adjust_logits_params(key, inputs_);
  adjust.logits = sample.logits;
  adjust.adjusted = sample.adjusted = ops::tensor_f32(adjusted_.device(), key.rows, model_.vocab_size());
  adjust.counts = reinterpret_cast<int32_t*>(sample_scratch_.device());
  ops_.adjust_logits(*stream_, adjust);
  ops_.sample_random(*stream_, sample);
  ops::LogprobsParams logprobs = memory_.logprobs_params(key);
  logprobs.logits = sample.logits;
  ops_.logprobs(*stream_, logprobs);
}

// Ends the piece being recorded where attention comes, and begins the next one behind it.
class GraphRunner::PieceRecorder final : public models::AttentionOutside {
 public:
  PieceRecorder(device::Stream& stream, CapturedForward& out) : stream_(stream), out_(out) { stream_.begin_capture(); }

  void attention(const ops::AttentionParams& params) override {
    end_piece();
    out_.attention.push_back({params, static_cast<int32_t>(out_.attention.size())});
    stream_.begin_capture();
  }
  Status finish() {
    end_piece();
    return status_;
  }

 private:
  void end_piece() {
    auto piece = stream_.end_capture();
    if (!piece.ok()) {
      status_ = piece.status();
    } else {
      out_.pieces.push_back(std::move(*piece));
    }
  }
  device::Stream& stream_;
  CapturedForward& out_;
  Status status_ = ok_status();
};

Result<GraphRunner::CapturedForward> GraphRunner::capture_forward(const GraphKey& key) {
  CapturedForward forward;
  PieceRecorder recorder(*stream_, forward);
  enqueue_forward(key, key.mode == GraphMode::kPiecewise ? &recorder : nullptr);
  BZ_TRY(recorder.finish());
  return forward;
}

// Copies run ahead of the step, in a graph of one node.
Status GraphRunner::capture_copies() {
  if (copy_graph_ != nullptr) return ok_status();
  stream_->begin_capture();
  enqueue_copies();
  BZ_ASSIGN(copy_graph_, stream_->end_capture());
  return ok_status();
}

Status GraphRunner::capture(const GraphKey& key) {
  if (key.mode == GraphMode::kNone || forward_graphs_.contains(key)) return ok_status();
  BZ_ASSIGN(CapturedForward forward, capture_forward(key));
  forward_graphs_[key] = std::move(forward);
  ++stats_.captures;
  slabs_->rezero_null_block();  // --null-guard=off: whatever a capture wrote there goes
  return ok_status();
}

// A graph of its own, a few nodes: recorded when a step first samples so.
Status GraphRunner::capture_sampler(const SamplerKey& key) {
  if (sampler_graphs_.contains(key)) return ok_status();
  stream_->begin_capture();
  enqueue_sample(key.first, key.second);
  BZ_ASSIGN(sampler_graphs_[key], stream_->end_capture());
  return ok_status();
}

bool GraphRunner::capture_deferred() {
  if (deferred_.empty()) return false;
  const GraphKey key = deferred_.extract(deferred_.begin()).value();
  if (const Status status = capture(key); !status.ok()) {
    log::warn("{}: {}; its steps run without a graph", key.name(), status.message());
    without_graph_.insert(key);
  }
  return true;
}

bool GraphRunner::has_graphs(const SamplerKey& sampler_key) {
  const GraphKey& key = sampler_key.first;
  if (key.mode == GraphMode::kNone) return false;
  if (forward_graphs_.contains(key) && capture_sampler(sampler_key).ok()) return true;
  if (without_graph_.contains(key)) return false;
  if (config_.mode == GraphMode::kAuto && key.uniform_query_len == 0) {
    if (++auto_uses_[key] == 2) deferred_.insert(key);
    return false;
  }
  Status status = deferred_.contains(key) ? Status(StatusCode::kUnavailable, "not captured yet") : capture(key);
  if (status.ok()) status = capture_sampler(sampler_key);
  if (status.ok()) return true;
  log::info("{}: runs without a graph: {}", key.name(), status.message());
  without_graph_.insert(key);
  return false;
}

GraphRunner::StepGraphs GraphRunner::find_graphs(const SamplerKey& key) {
  if (!has_graphs(key)) return {};
  return {&forward_graphs_.at(key.first), sampler_graphs_.at(key).get()};
}

void GraphRunner::run(const StepPlan& plan) {
  const GraphKey key = choose_graph_key(graph_limits(), plan.shape());
  StagedStep step = inputs_.stage(plan, key);
  const SamplerKey sampler{key, step.sampler()};
  if (last_.graphs.forward == nullptr || last_.key != sampler) {
    last_ = {sampler, find_graphs(sampler), &stats_.steps_by_key[key]};
  }
  const bool replay = last_.graphs.forward != nullptr && (plan.cache.copies.empty() || capture_copies().ok());
  execute(std::move(step), replay ? last_.graphs : StepGraphs{});

  const auto num_rows = static_cast<int64_t>(plan.rows.size());
  in_flight_[plan.cache.sequence % StepInputs::kRingSlots] = sampler;
  ++stats_.steps;
  ++*last_.count;
  if (num_rows == 0) ++stats_.dummy_steps;
  stats_.padded_rows += key.rows - num_rows;
  stats_.padded_tokens += key.tokens - static_cast<int64_t>(plan.tokens.size());
}

// The layer is the attention's number: every layer of the models here has one.
void GraphRunner::launch(const CapturedForward& forward) {
  for (size_t i = 0; i < forward.pieces.size(); ++i) {
    stream_->launch(*forward.pieces[i]);
    if (i == forward.attention.size()) break;
    stream_->set_layer(forward.attention[i].layer);
    ops_.attention(*stream_, forward.attention[i].params);
  }
}

void GraphRunner::execute(StagedStep step, const StepGraphs& graphs) {
  stream_->begin_step(step.sequence());
  if (graphs.forward != nullptr) {
    if (step.has_copies()) stream_->launch(*copy_graph_);
    launch(*graphs.forward);
    stream_->launch(*graphs.sampler);
  } else {
    ++stats_.steps_without_graph;
    if (step.has_copies()) enqueue_copies();
    enqueue_forward(step.key());
    enqueue_sample(step.key(), step.sampler());
  }
  stream_->end_step(step.sequence());
}

ops::StepView GraphRunner::derive(const StepPlan& plan) {
  const GraphKey key = choose_graph_key(graph_limits(), plan.shape());
  const StagedStep step = inputs_.stage(plan, key);
  ops_.prepare(*stream_, memory_.prepare_params(key, inputs_));
  stream_->synchronize();
  inputs_.release(step.sequence());
  return memory_.view(key);
}

StepResult GraphRunner::wait(uint64_t sequence) {
  stream_->wait_step(sequence);
  const ops::StepResultHeader& header = memory_.result_header(sequence);
  BZ_CHECK_EQ(header.sequence, sequence);
  inputs_.release(sequence);
  const auto& [key, sampler] = in_flight_[sequence % StepInputs::kRingSlots];
  const int32_t num_logprobs = sampler == ops::SamplerClass::kFull ? key.logits : 0;
  const int32_t rows = header.num_valid_rows;
  return {header.error, key, memory_.results(sequence, rows), memory_.logits_ends(sequence, rows),
          memory_.logprobs(sequence, num_logprobs)};
}

}  // namespace bz::engine
