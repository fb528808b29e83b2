#include "support/scoring.h"

#include <algorithm>

namespace bz::test {

void score_text(engine::LoadedModel& model, const std::vector<int32_t>& ids, int32_t chunk,
                const std::function<void(int32_t position, std::span<const float> logits)>& see) {
  engine::GraphRunner& runner = model.runner();
  kv::CacheManager cache(runner.config().cache);
  const auto vocab = static_cast<size_t>(model.model().vocab_size());
  std::vector<float> host(vocab);
  const kv::RowId row = cache.admit();
  engine::StepPlan plan;
  const auto total = static_cast<int32_t>(ids.size());
  for (int32_t begin = 0; begin < total; begin += chunk) {
    const int32_t n = std::min(chunk, total - begin);
    plan.clear();
    cache.append(row, n);
    BZ_CHECK(cache.take_plan(plan.cache));
    plan.tokens.assign(ids.begin() + begin, ids.begin() + begin + n);
    engine::PlanRow r;
    r.row = row;
    r.query_len = n;
    r.num_logits = n;
    r.max_seq_len = begin + n;
    plan.rows.push_back(r);
    runner.run(plan);
    const engine::StepResult result = runner.wait(plan.cache.sequence);
    cache.processed(plan.cache.sequence);
    BZ_CHECK(result.error == ops::StepError::kNone);
    const ops::TensorRef logits = runner.logits(result.key);
    for (int32_t i = 0; i < n; ++i) {
      model.device().copy_to_host(host.data(), logits.row<float>(i), vocab * sizeof(float));
      see(begin + i, host);
    }
  }
}

}  // namespace bz::test
