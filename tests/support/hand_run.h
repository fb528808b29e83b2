// HandRun: one request whose steps a test plans by hand and runs through the GraphRunner, without a scheduler.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph_runner.h"
#include "kv/cache_manager.h"

namespace bz::test {

class HandRun {
 public:
  explicit HandRun(engine::GraphRunner& runner);

  // The plan of the request's next step: these tokens, the last one sampled.
  engine::StepPlan plan(const std::vector<int32_t>& tokens);
  // Runs a plan and waits for it.
  engine::StepResult run(const engine::StepPlan& plan);
  engine::StepResult step(const std::vector<int32_t>& tokens) { return run(plan(tokens)); }
  // The first live row of logits of the step that ran last. CPU only.
  std::vector<float> logits(const engine::GraphKey& key) const;

  kv::RowId row() const { return row_; }
  const kv::CacheManager& cache() const { return cache_; }

 private:
  engine::GraphRunner& runner_;
  kv::CacheManager cache_;
  kv::RowId row_;
};

}  // namespace bz::test
