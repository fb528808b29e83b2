#include "mutation/scenarios.h"

#include "base/mutation.h"
#include "support/models.h"

namespace bz::test {
namespace {

constexpr int32_t kBlockSize = 16;
constexpr int32_t kNumBlocks = 8;  // besides the null block

// A greedy request whose prompt is long enough to be told apart from every other.
engine::Request request(int32_t prompt, int32_t max_tokens, int32_t first_id) {
  engine::Request r;
  for (int32_t i = 0; i < prompt; ++i) r.prompt.push_back((first_id + 7 * i) % 320);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.ignore_eos = true;
  return r;
}

std::vector<engine::Request> requests_of(Scenario scenario) {
  switch (scenario) {
    case Scenario::kPaddedDecode: return {request(5, 12, 1), request(9, 12, 50), request(20, 12, 100)};
    case Scenario::kRowChangesHands:
      return {request(6, 9, 1), request(6, 3, 50), request(40, 3, 100), request(4, 9, 9)};
    case Scenario::kBlocksChangeHands: return {request(6, 4, 1), request(40, 3, 50), request(110, 2, 100)};
    case Scenario::kIdleRank: return {request(10, 8, 1)};
    case Scenario::kIdleRankLater: return {request(10, 1, 1), request(20, 6, 50)};
  }
  return {};
}

void steps(Session& s, int count) {
  for (int i = 0; i < count; ++i) s.step();
}

void run_scenario(Session& s, Scenario scenario) {
  const std::vector<engine::Request> requests = requests_of(scenario);
  switch (scenario) {
    case Scenario::kPaddedDecode:
      BZ_CHECK(s.core().warm_up().ok());
      for (const auto& r : requests) s.submit(r);
      break;
    case Scenario::kRowChangesHands:
      s.core().set_min_rows(4);
      for (size_t i = 0; i < 3; ++i) s.submit(requests[i]);
      steps(s, 3);  // the second and third end together; the third's row is the next to be claimed
      s.submit(requests[3]);
      break;
    case Scenario::kBlocksChangeHands:
      s.core().set_min_rows(2);
      s.submit(requests[0]);
      s.submit(requests[1]);
      steps(s, 4);            // the second ends one step before the first: the first's row is the next to be claimed
      s.submit(requests[2]);  // takes every free block
      break;
    case Scenario::kIdleRank:
      s.submit(requests[0]);
      steps(s, 3);
      s.core().dummy_step(1, 16);
      break;
    case Scenario::kIdleRankLater:
      s.submit(requests[0]);
      s.step();
      s.submit(requests[1]);
      steps(s, 2);
      s.core().dummy_step(1, 16);
      break;
  }
  s.finish_all_work();
}

engine::LoadOptions options(const std::string& path, device::NullGuard guard) {
  engine::LoadOptions o = test_options(path);
  o.null_guard = guard;
  o.max_num_seqs = 8;
  o.max_num_batched_tokens = 256;
  o.block_size = kBlockSize;
  o.kv_cache_bytes = (kNumBlocks + 1) * 4096;  // a slab: 2 layers x (K, V) x 16 entries of 64 bytes
  return o;
}

}  // namespace

Outcome play(const std::string& model_path, const std::string& isa, Scenario scenario, uint32_t mutations,
             device::NullGuard guard, bool sanitize) {
  engine::LoadOptions o = options(model_path, guard);
  o.kv_sanitize = sanitize;
  const auto model = load(o, isa);
  BZ_CHECK_EQ(model->core().stats().blocks_total, kNumBlocks);
  g_mutations = mutations;
  Outcome outcome;
  {
    Session session(*model);
    run_scenario(session, scenario);
    outcome.trace = session.trace();
  }
  g_mutations = 0;
  const engine::EngineStats stats = model->core().stats();
  outcome.alive = stats.alive;
  outcome.failure = stats.failure;
  outcome.null_block_clean = stats.null_block_clean;
  if (sanitize) outcome.violations = model->core().sanitizer()->violations();
  return outcome;
}

Trace right_answers(const std::string& model_path, const std::string& isa, Scenario scenario) {
  const auto model = load(options(model_path, device::NullGuard::kHard), isa);
  return run_requests(*model, requests_of(scenario), {.at_once = 1});
}

}  // namespace bz::test
