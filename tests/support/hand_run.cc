#include "support/hand_run.h"

namespace bz::test {

HandRun::HandRun(engine::GraphRunner& runner) : runner_(runner), cache_(runner.config().cache), row_(cache_.admit()) {}

engine::StepPlan HandRun::plan(const std::vector<int32_t>& tokens) {
  const auto n = static_cast<int32_t>(tokens.size());
  engine::StepPlan plan;
  engine::PlanRow row;
  row.row = row_;
  row.query_len = n;
  row.num_logits = 1;
  row.num_samples = 1;
  row.max_seq_len = cache_.num_scheduled(row_) + n;
  plan.rows.push_back(row);
  plan.tokens = tokens;
  cache_.append(row_, n);
  BZ_CHECK(cache_.take_plan(plan.cache));
  return plan;
}

engine::StepResult HandRun::run(const engine::StepPlan& plan) {
  runner_.run(plan);
  const engine::StepResult result = runner_.wait(plan.cache.sequence);
  cache_.processed(plan.cache.sequence);
  return result;
}

std::vector<float> HandRun::logits(const engine::GraphKey& key) const {
  const ops::TensorRef logits = runner_.logits(key);
  return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
}

}  // namespace bz::test
