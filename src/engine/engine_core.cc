#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace bz::engine {

EngineCore::EngineCore(GraphRunner& runner, const SchedulerConfig& config, const kv::CacheConfig& cache,
                       std::unique_ptr<KvSanitizer> sanitizer)
    : runner_(runner),
      scheduler_(config, cache),
      sanitizer_(std::move(sanitizer)),
      recorder_(runner.config().limits.max_rows) {
  const StepLimits& limits = runner.config().limits;
  for (StepPlan& plan : plans_) {
    plan.rows.reserve(static_cast<size_t>(limits.max_rows));
    plan.tokens.reserve(static_cast<size_t>(limits.max_tokens));
    plan.cache.changes.reserve(static_cast<size_t>(limits.max_changes));
    plan.history.reserve(static_cast<size_t>(limits.max_history));
    plan.cache.copies.reserve(static_cast<size_t>(limits.max_copies));
    plan.biases.reserve(static_cast<size_t>(limits.max_biases));
  }
  if (sanitizer_ != nullptr) sanitizer_->poison_free_blocks(scheduler_.cache());
}

void EngineCore::set_max_in_flight(int32_t steps) {
  BZ_CHECK(steps >= 1 && steps <= static_cast<int32_t>(kMaxInFlight));
  BZ_CHECK(steps == 1 || (sanitizer_ == nullptr && !observer_));  // both look at a step before the next one runs
  max_in_flight_ = steps;
}

bool EngineCore::step() {
  if (!has_work()) return false;
  StepPlan& plan = next_plan();
  scheduler_.schedule(plan);
  plan.min_rows = min_rows_;
  const bool idle = plan.rows.empty() && !scheduler_.has_pending_changes();
  if (!idle) submit(plan);
  // Nothing to plan until results come, or as many on their way as may be.
  if (alive_ && num_in_flight_ > 0 && (idle || num_in_flight_ >= max_in_flight_)) collect();
  return true;
}

void EngineCore::dummy_step(int32_t min_rows, int32_t min_tokens) {
  if (!alive_) return;
  StepPlan& plan = next_plan();
  plan.clear();
  plan.min_rows = min_rows;
  plan.min_tokens = min_tokens;
  submit(plan);
  while (alive_ && num_in_flight_ > 0) collect();
}

// Table changes that do not fit beside the step go ahead in change plans (PAD-10).
void EngineCore::submit(StepPlan& plan) {
  while (!scheduler_.take_cache_plan(plan.cache)) {
    while (num_in_flight_ > 0) collect();
    if (!alive_) return;
    std::swap(change_plan_.cache, plan.cache);
    runner_.run(change_plan_);
    finish_step(change_plan_);
    if (!alive_) return;
  }
  recorder_.record(plan, choose_graph_key(runner_.graph_limits(), plan.shape()));
  runner_.run(plan);
  ++num_submitted_;
  ++num_in_flight_;
}

void EngineCore::collect() {
  const StepPlan& plan = plans_[(num_submitted_ - static_cast<uint32_t>(num_in_flight_)) % kMaxInFlight];
  --num_in_flight_;
  const StepResult result = finish_step(plan);
  if (!alive_) return;
  scheduler_.process(plan, result.rows, result.logits_ends, result.logprobs);
  if (sanitizer_ != nullptr) sanitizer_->poison_free_blocks(scheduler_.cache());
}

// Waits for a step and looks at how it went.
StepResult EngineCore::finish_step(const StepPlan& plan) {
  const StepResult result = runner_.wait(plan.cache.sequence);
  scheduler_.processed(plan.cache.sequence);
  if (result.error == ops::StepError::kSequenceGap) {
    fail_stop(fmt::format("step {}: what was staged is not this step's plan (PAD-10)", plan.cache.sequence));
  } else if (result.error == ops::StepError::kPastReserved) {
    fail_stop(fmt::format("step {}: a row outgrew the blocks reserved for it", plan.cache.sequence));
  }
  if (sanitizer_ != nullptr && alive_) sanitizer_->check_step(plan, result.key, scheduler_.cache());
  if (observer_) observer_(plan, result);
  return result;
}

Status EngineCore::warm_up(int32_t max_rows) {
  const GraphLimits limits = runner_.graph_limits();
  for (const int32_t rows : decode_capture_sizes(limits.max_rows)) {
    const GraphKey key = choose_graph_key(limits, {.min_rows = rows});
    if (rows > max_rows) {
      if (key.mode != GraphMode::kNone) runner_.defer_capture(key);
      continue;
    }
    BZ_TRY(runner_.capture(key));
    dummy_step(rows);
  }
  return ok_status();
}

void EngineCore::use_pipeline() {
  if (runner_.runs_beside_host() && sanitizer_ == nullptr && !observer_) set_max_in_flight(2);
}

std::string EngineCore::fault_summary(uint64_t step) const {
  const RecordedStep* recorded = recorder_.find(step);
  if (recorded == nullptr) return "the device faulted outside a recorded step; the engine stops";
  return fmt::format("the device faulted in step {}, graph {}, or one enqueued behind it; the engine stops", step,
                     recorded->key.name());
}

Status EngineCore::save_fault_record(const std::string& path, const LoadOptions& options, uint64_t step) const {
  return recorder_.save(path, options, scheduler_.cache().tables(), step);
}

void EngineCore::fail_stop(const std::string& why) {
  alive_ = false;
  failure_ = why;
  log::error("{}; the engine stops", why);
  scheduler_.finish_all(FinishReason::kError, why);
}

EngineStats EngineCore::stats() const {
  EngineStats s;
  const Scheduler::Counters& c = scheduler_.counters();
  s.requests_running = scheduler_.num_running();
  s.requests_waiting = scheduler_.num_waiting();
  s.requests_finished = c.finished;
  s.requests_failed = c.failed;
  s.requests_preempted = c.preempted;
  s.requests_forked = c.forked;
  s.prompt_tokens = c.prompt_tokens;
  s.generation_tokens = c.generation_tokens;
  s.prefix_query_tokens = c.prefix_query_tokens;
  s.prefix_hit_tokens = c.prefix_hit_tokens;
  for (size_t i = 1; i < c.prefix_misses.size(); ++i) {  // 0: no miss
    s.prefix_misses[std::string(kv::miss_reason_name(static_cast<kv::MissReason>(i)))] = c.prefix_misses[i];
  }
  s.spec_drafts = c.num_drafts;
  s.spec_draft_tokens = c.draft_tokens;
  s.spec_accepted_tokens = c.accepted_tokens;
  const auto places = c.accepted_by_place.begin();
  s.spec_accepted_by_place.assign(places, places + scheduler_.cache().config().num_spec);
  const RunnerStats& r = runner_.stats();
  s.steps = r.steps;
  s.dummy_steps = r.dummy_steps;
  s.padded_rows = r.padded_rows;
  s.steps_without_graph = r.steps_without_graph;
  for (const auto& [key, count] : r.steps_by_key) s.steps_by_graph_key[key.name()] = count;
  const kv::CacheManager& cache = scheduler_.cache();
  s.blocks_total = cache.num_blocks() - 1;
  s.blocks_free = cache.num_free_blocks();
  s.kv_cache_bytes = runner_.slabs().request().block_stride * cache.num_blocks();
  s.null_block_clean = runner_.slabs().null_block_is_zero();
  s.alive = alive_;
  s.failure = failure_;
  return s;
}

}  // namespace bz::engine
