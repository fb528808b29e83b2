#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace bz::engine {

EngineCore::EngineCore(GraphRunner& runner, const SchedulerConfig& config, const kv::CacheConfig& cache,
                       std::unique_ptr<KvSanitizer> sanitizer)
    : runner_(runner), scheduler_(config, cache), sanitizer_(std::move(sanitizer)) {
  const StepLimits& limits = runner.config().limits;
  plan_.rows.reserve(static_cast<size_t>(limits.max_rows));
  plan_.tokens.reserve(static_cast<size_t>(limits.max_tokens));
  plan_.cache.changes.reserve(static_cast<size_t>(limits.max_changes));
  if (sanitizer_ != nullptr) sanitizer_->poison_free_blocks(scheduler_.cache());
}

bool EngineCore::step() {
  if (!has_work()) return false;
  scheduler_.schedule(plan_);
  plan_.min_rows = min_rows_;
  run_change_plans();
  if (!alive_) return true;
  const StepResult result = run(plan_);
  if (alive_) scheduler_.process(plan_, result.rows);
  if (alive_ && sanitizer_ != nullptr) sanitizer_->poison_free_blocks(scheduler_.cache());
  return true;
}

void EngineCore::dummy_step(int32_t min_rows, int32_t min_tokens) {
  if (!alive_) return;
  plan_.clear();
  plan_.min_rows = min_rows;
  plan_.min_tokens = min_tokens;
  run_change_plans();
  if (alive_) run(plan_);
}

// Completes plan_.cache; what does not fit beside the step goes ahead (PAD-10).
void EngineCore::run_change_plans() {
  while (!scheduler_.take_cache_plan(plan_.cache)) {
    std::swap(change_plan_.cache, plan_.cache);
    run(change_plan_);
    if (!alive_) return;
  }
}

StepResult EngineCore::run(const StepPlan& plan) {
  runner_.run(plan);
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

void EngineCore::warm_up() {
  const GraphLimits limits = runner_.graph_limits();
  for (int32_t rows = 1;; rows = std::min(rows * 2, limits.max_rows)) {
    dummy_step(rows);
    if (rows == limits.max_rows) return;
  }
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
  s.prompt_tokens = c.prompt_tokens;
  s.generation_tokens = c.generation_tokens;
  const RunnerStats& r = runner_.stats();
  s.steps = r.steps;
  s.dummy_steps = r.dummy_steps;
  s.padded_rows = r.padded_rows;
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
