#include "engine/step_plan.h"

namespace bz::engine {

StepShape StepPlan::shape() const {
  StepShape s;
  s.tokens = static_cast<int32_t>(tokens.size());
  s.rows = static_cast<int32_t>(rows.size());
  for (const PlanRow& row : rows) s.all_single_token &= row.query_len == 1;
  s.logits_all_tokens = logits_all_tokens;
  s.min_tokens = min_tokens;
  s.min_rows = min_rows;
  return s;
}

ops::SamplerClass StepPlan::sampler_class() const {
  for (const PlanRow& row : rows) {
    if (row.sample && row.sampling.temperature > 0) return ops::SamplerClass::kRandom;
  }
  return ops::SamplerClass::kGreedy;
}

void StepPlan::clear() {
  cache.sequence = 0;
  cache.changes.clear();
  cache.copies.clear();
  cache.rows.clear();
  rows.clear();
  tokens.clear();
  logits_all_tokens = false;
  min_tokens = 0;
  min_rows = 0;
}

}  // namespace bz::engine
