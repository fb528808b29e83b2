// PAD-9a and PAD-9b on a small random model: whatever stands around a request, its answer is the same to the bit.
//
// Every test runs the same 64 requests in some other way than one by one, and compares every sampled token and every
// bit of the logits behind it. Nothing may even read block 0 (null guard hard).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

constexpr size_t kNumRequests = 64;

class TinyPadding : public testing::TestWithParam<std::string> {
 protected:
  TinyPadding() : file_(quantized_tiny()) {}
  void SetUp() override { BZ_SKIP_WITHOUT_TEST_DEVICE(); }

  engine::LoadOptions options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.max_num_seqs = static_cast<int32_t>(kNumRequests);
    o.max_num_batched_tokens = 512;
    return o;
  }
  std::unique_ptr<engine::LoadedModel> load_tiny(const engine::LoadOptions& o) const { return load(o, GetParam()); }

  // One request at a time, one thread, no graphs, no padding of rows: what all the others are compared to.
  // On a GPU sums are cut at the ends of blocks: of the same size there.
  Trace alone(int32_t block_size = 0) const {
    engine::LoadOptions o = options();
    o.graphs = engine::GraphMode::kNone;
    if (tests_use_gpu()) o.block_size = block_size;
    return run_requests(*load_tiny(o), requests_, {.at_once = 1});
  }
  Trace run(const engine::LoadOptions& o, const RunStyle& style = {}) const {
    const auto model = load_tiny(o);
    Trace trace = run_requests(*model, requests_, style);
    EXPECT_TRUE(model->core().alive());
    EXPECT_TRUE(model->core().stats().null_block_clean);
    return trace;
  }
  void expect_same(const Trace& trace, int32_t block_size = 0) const {
    EXPECT_EQ(first_difference(alone(block_size), trace), "");
  }

  TemporaryModel file_;
  std::vector<engine::Request> requests_ = mixed_requests(kNumRequests, 90, 20, 320, 7);
};

TEST_P(TinyPadding, AloneOrAllAtOnce) {
  const Trace trace = run(options());
  size_t outputs = 0;
  for (const auto& request : trace) outputs += request.size();
  EXPECT_GT(outputs, kNumRequests * 5);  // it did compute something
  expect_same(trace);
}

TEST_P(TinyPadding, GraphsOrNone) {
  engine::LoadOptions o = options();
  o.graphs = engine::GraphMode::kNone;
  expect_same(run(o));
}

TEST_P(TinyPadding, EveryPaddedSize) {
  const Trace expected = alone();
  const auto model = load_tiny(options());
  for (int32_t rows = 1; rows <= static_cast<int32_t>(kNumRequests); rows *= 2) {
    const Trace trace = run_requests(*model, requests_, {.at_once = 3, .min_rows = rows});
    EXPECT_EQ(first_difference(expected, trace), "") << "padded to " << rows << " rows";
  }
  EXPECT_GT(model->core().stats().padded_rows, 0);
}

TEST_P(TinyPadding, DummyStepsBetweenAnyTwo) {
  engine::LoadOptions o = options();
  o.max_num_seqs = 16;
  const auto model = load_tiny(o);
  ASSERT_TRUE(model->core().warm_up().ok());
  expect_same(run_requests(*model, requests_, {.dummy_between = true}));
  EXPECT_GT(model->core().stats().dummy_steps, 50);
}

// PAD-8, by the bytes: not even padding that nothing stops writes there.
TEST_P(TinyPadding, TheNullBlockStaysZeroThoughNothingGuardsIt) {
  engine::LoadOptions o = options();
  o.null_guard = device::NullGuard::kOff;
  expect_same(run(o, {.at_once = 5, .min_rows = 16, .dummy_between = true}));
}

TEST_P(TinyPadding, EveryChunkSize) {
  const Trace expected = alone();
  for (const int32_t chunk : {16, 64, 512}) {
    engine::LoadOptions o = options();
    o.max_num_batched_tokens = chunk;
    o.max_num_seqs = std::min(chunk, 24);
    EXPECT_EQ(first_difference(expected, run(o)), "") << "in chunks of " << chunk;
  }
}

TEST_P(TinyPadding, OneThreadOrTwo) {
  engine::LoadOptions o = options();
  o.device.num_threads = 2;
  expect_same(run(o));
}

TEST_P(TinyPadding, AfterPreemption) {
  engine::LoadOptions o = options();
  o.block_size = 4;
  o.kv_cache_bytes = 96 << 10;
  const auto model = load_tiny(o);
  expect_same(run_requests(*model, requests_, {}), o.block_size);
  EXPECT_GT(model->core().stats().requests_preempted, 5);
}

TEST_P(TinyPadding, UnownedBytesAreNan) {
  engine::LoadOptions o = options();
  o.kv_sanitize = true;
  const auto model = load_tiny(o);
  expect_same(run_requests(*model, requests_, {.at_once = 5, .dummy_between = true}));
  EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
}

// What earlier requests left in the prefix cache, hit by some and evicted by others, is the same to the bit too.
TEST_P(TinyPadding, PrefixesAreCached) {
  constexpr int32_t kBlockSize = 4;
  const Trace expected = alone(kBlockSize);
  for (const int64_t kib : {512, 1024}) {  // half of all tokens, all of them
    engine::LoadOptions o = options();
    o.prefix_caching = true;
    o.block_size = kBlockSize;
    o.kv_cache_bytes = kib << 10;
    o.kv_sanitize = true;
    const auto model = load_tiny(o);
    for (const size_t at_once : {64, 3, 17}) {
      EXPECT_EQ(first_difference(expected, run_requests(*model, requests_, {.at_once = at_once})), "");
    }
    EXPECT_GT(model->core().stats().prefix_hit_tokens, kib == 512 ? 100 : 1000);
    EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
  }
}

// Others come and leave at any time; those that stay never notice.
TEST_P(TinyPadding, OthersAreCancelled) {
  const auto model = load_tiny(options());
  Session session(*model);
  const std::vector<engine::Request> others = mixed_requests(200, 90, 20, 320, 8);
  for (const engine::Request& r : requests_) session.submit(r);
  for (size_t i = 0; i < others.size(); ++i) {
    const size_t index = session.submit(others[i]);
    session.step();
    if (i % 2 == 0) session.step();
    session.cancel(index);
  }
  session.finish_all_work();
  Trace trace = session.trace();
  trace.resize(kNumRequests);
  expect_same(trace);
}

INSTANTIATE_TEST_SUITE_P(Isa, TinyPadding, testing::ValuesIn(batch_invariant_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
