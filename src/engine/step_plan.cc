#include "engine/step_plan.h"

#include "base/mutation.h"

namespace bz::engine {

StepShape StepPlan::shape() const {
  StepShape s;
  s.tokens = static_cast<int32_t>(tokens.size());
  s.rows = static_cast<int32_t>(rows.size());
  for (const PlanRow& row : rows) {
    s.all_single_token &= row.query_len == 1;
    s.logits += row.num_logits;
  }
  s.min_tokens = min_tokens;
  s.min_rows = min_rows;
  return s;
}

namespace {

bool adjusts(const ops::LogitAdjust& a) {
  return a.repetition_penalty != 1.0f || a.presence_penalty != 0.0f || a.frequency_penalty != 0.0f ||
         a.num_masked + a.num_bias > 0;
}

}  // namespace

ops::SamplerClass StepPlan::sampler_class() const {
  ops::SamplerClass sampler = ops::SamplerClass::kGreedy;
  for (const PlanRow& row : rows) {
    if (row.sampling.num_top_logprobs >= 0 && row.num_logits > 0) return ops::SamplerClass::kFull;
    if (row.num_samples == 0) continue;
    if (adjusts(row.sampling.adjust)) return ops::SamplerClass::kFull;
    if (row.sampling.temperature > 0) sampler = ops::SamplerClass::kRandom;
  }
  return sampler;
}

void StepPlan::clear() {
  cache.sequence = 0;
  cache.changes.clear();
  cache.copies.clear();
  cache.rows.clear();
  rows.clear();
  if (mutated(Mutation::kPlansForgetCapacity)) rows.shrink_to_fit();
  tokens.clear();
  history.clear();
  biases.clear();
  min_tokens = 0;
  min_rows = 0;
}

}  // namespace bz::engine
