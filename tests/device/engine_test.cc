// The whole engine on a GPU, with the real model: PAD-9a and PAD-9b to the bit, graph modes against each other, ten
// thousand steps with a dummy step behind each. tests/parity compares it with the float32 goldens.
#include <gmock/gmock.h>

#include "device/cuda/cuda_stream.h"
#include "device/twin.h"
#include "ops/cuda/products.h"
#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

using engine::GraphMode;

constexpr size_t kNumRequests = 64;

class EngineOnGpu : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { BZ_SKIP_WITHOUT_GPU(); }

  static engine::LoadOptions options() {
    engine::LoadOptions o = test_options(smollm2_or_die());
    o.device.name = "cuda:0";
    o.batch_invariant = GetParam();
    o.max_model_len = 512;
    o.max_num_seqs = static_cast<int32_t>(kNumRequests);
    o.kv_cache_bytes = int64_t{512} << 20;
    return o;
  }
  static std::unique_ptr<engine::LoadedModel> load_on_gpu(const engine::LoadOptions& o) {
    auto model = engine::LoadedModel::load(o);
    BZ_CHECK_MSG(model.ok(), "{}", model.status().message());
    return std::move(*model);
  }
  Trace run(const engine::LoadOptions& o, const RunStyle& style) const {
    const auto model = load_on_gpu(o);
    Trace trace = run_requests(*model, requests_, style);
    EXPECT_TRUE(model->core().alive());
    EXPECT_TRUE(model->core().stats().null_block_clean);
    if (o.kv_sanitize) {
      EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
    }
    return trace;
  }

  std::vector<engine::Request> requests_ = mixed_requests(kNumRequests, 90, 20, 49152, 7);
};

// What only one of the op tables does, or promises.
class DefaultOpsOnGpu : public EngineOnGpu {};
class InvariantOpsOnGpu : public EngineOnGpu {};

// PAD-9a: the same schedule, so the same graph keys. What stands in padding, in unowned bytes and in every scratch
// buffer is what dummy steps of changing size and the sanitizer's NaN left there.
TEST_P(EngineOnGpu, NoBitDependsOnPaddingPoisonOrDummySteps) {
  const Trace clean = run(options(), {});
  engine::LoadOptions poisoned = options();
  poisoned.kv_sanitize = true;
  EXPECT_EQ(first_difference(clean, run(poisoned, {.dummy_between = true})), "");
}

// What a step may not do: algorithms of its products were chosen and loaded before.
TEST_P(DefaultOpsOnGpu, NoStepChoosesAnAlgorithm) {
  if (ops::cuda::cublas_lt() == nullptr) GTEST_SKIP() << "no cuBLASLt here";
  const auto stream = gpu()->create_stream();
  const auto* products = ops::cuda::Products::of(static_cast<device::cuda::CudaStream&>(*stream));
  ASSERT_NE(products, nullptr);
  const size_t before = products->num_shapes();
  engine::LoadOptions o = options();
  o.max_num_batched_tokens = 300;  // a size of step that no other test has
  const auto model = load_on_gpu(o);
  const size_t loaded = products->num_shapes();
  EXPECT_GT(loaded, before);
  run_requests(*model, requests_, {.dummy_between = true});
  EXPECT_EQ(products->num_shapes(), loaded);
}

TEST_P(EngineOnGpu, EveryGraphModeGivesTheSameBits) {
  engine::LoadOptions o = options();
  o.graphs = GraphMode::kNone;
  const Trace expected = run(o, {});
  for (const GraphMode mode : {GraphMode::kPiecewise, GraphMode::kFull, GraphMode::kAuto}) {
    o.graphs = mode;
    EXPECT_EQ(first_difference(expected, run(o, {})), "") << engine::graph_mode_name(mode);
  }
}

// PAD-9b, which the default ops do not promise.
TEST_P(InvariantOpsOnGpu, AnswersDoNotDependOnTheBatch) {
  const Trace alone = run(options(), {.at_once = 1});
  EXPECT_EQ(first_difference(alone, run(options(), {})), "") << "all at once";
  EXPECT_EQ(first_difference(alone, run(options(), {.at_once = 5, .min_rows = 24})), "") << "padded";
  engine::LoadOptions chunks = options();
  chunks.max_num_batched_tokens = 64;
  EXPECT_EQ(first_difference(alone, run(chunks, {.dummy_between = true})), "") << "in chunks";
}

struct CollectTokens final : engine::Sink {
  void on_output(const engine::Output& output) override {
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  }
  std::vector<int32_t> tokens;
};

// As the server runs them: two steps in flight, no observer.
std::vector<std::vector<int32_t>> tokens_in_pipeline(engine::LoadedModel& model,
                                                     const std::vector<engine::Request>& requests) {
  std::vector<std::shared_ptr<CollectTokens>> sinks;
  model.core().use_pipeline();
  for (const engine::Request& r : requests) {
    sinks.push_back(std::make_shared<CollectTokens>());
    model.core().add(engine::RequestId(sinks.size()), r, sinks.back());
  }
  while (model.core().step()) {
  }
  std::vector<std::vector<int32_t>> tokens;
  for (const auto& sink : sinks) tokens.push_back(sink->tokens);
  return tokens;
}

// Drafts of the text itself, in every graph mode and with two steps in flight.
TEST_P(InvariantOpsOnGpu, DraftsChangeNoBitOfAnAnswer) {
  for (engine::Request& r : requests_) {  // texts that repeat themselves, so that there are drafts
    r.prompt.insert(r.prompt.end(), r.prompt.begin(), r.prompt.end());
  }
  const Trace expected = run(options(), {.at_once = 1});
  engine::LoadOptions o = options();
  o.num_draft_tokens = 4;
  for (const GraphMode mode : {GraphMode::kNone, GraphMode::kPiecewise, GraphMode::kFull, GraphMode::kAuto}) {
    o.graphs = mode;
    const auto model = load_on_gpu(o);
    EXPECT_EQ(first_difference(expected, run_requests(*model, requests_, {.dummy_between = mode == GraphMode::kFull})),
              "")
        << engine::graph_mode_name(mode);
    const engine::EngineStats stats = model->core().stats();
    EXPECT_GT(stats.spec_accepted_tokens, 0);
    EXPECT_LT(stats.spec_accepted_tokens, stats.spec_draft_tokens);
  }
  const auto model = load_on_gpu(o);
  const std::vector<std::vector<int32_t>> tokens = tokens_in_pipeline(*model, requests_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    std::vector<int32_t> want;
    for (const Sampled& s : expected[i]) want.push_back(s.token);
    EXPECT_EQ(tokens[i], want) << "request " << i << " in the pipeline";
  }
}

// Every byte of the cache that the row's tokens did not write is as it was, but for blocks that others had before.
void expect_only_entries_of(engine::LoadedModel& model, kv::RowId row, int32_t num_tokens, std::byte untouched,
                            const std::vector<bool>& had_before) {
  const device::SlabMemory& slabs = model.runner().slabs();
  const kv::Layout& layout = model.plan().layout;
  const auto stride = static_cast<size_t>(layout.block_stride);
  const int32_t block_size = layout.groups[0].spec.block_size;
  std::vector<bool> written(stride);  // by the entries of the block in question
  std::vector<std::byte> bytes(stride);
  std::map<uint32_t, int32_t> entries;  // of the row's blocks
  for (int32_t first = 0; first < num_tokens; first += block_size) {
    const auto block = model.core().scheduler().cache().tables().block(kv::GroupId(0), row, first / block_size);
    entries[block.value()] = std::min(block_size, num_tokens - first);
  }
  for (uint32_t block = 1; block < static_cast<uint32_t>(layout.num_blocks); ++block) {
    if (had_before[block]) continue;
    std::fill(written.begin(), written.end(), false);
    for (const kv::LayerPages& pages : layout.groups[0].layers) {
      for (int32_t i = 0; i < entries[block]; ++i) {
        for (const kv::PageView* page : {&pages.k, &pages.v}) {
          const int64_t at = kv::entry_offset(*page, kv::SlotId(int64_t{i})).value();
          std::fill_n(written.begin() + at, page->entry_bytes, true);
        }
      }
    }
    model.device().copy_to_host(bytes.data(), slabs.base() + block * stride, stride);
    for (size_t i = 0; i < stride; ++i) {
      ASSERT_TRUE(written[i] || bytes[i] == untouched)
          << "block " << block << " of " << layout.num_blocks << ", byte " << i << " is "
          << std::to_integer<int>(bytes[i]) << "; the row has " << entries[block] << " entries there, " << num_tokens
          << " in all, in " << entries.size() << " blocks";
    }
  }
}

kv::RowId only_row(const kv::CacheManager& cache) {
  kv::RowId row(1);
  while (!cache.is_live(row)) row = kv::RowId(row.value() + 1);
  return row;
}

TEST_P(EngineOnGpu, TenThousandStepsEachFollowedByADummyStep) {
  constexpr int kSteps = 5000;  // of each of two requests, one after the other
  constexpr std::byte kNan{0xFF};
  engine::LoadOptions o = options();
  o.max_model_len = 8192;
  o.max_num_seqs = 32;
  o.null_guard = device::NullGuard::kReadOnly;
  std::vector<int32_t> tokens[2];
  for (const bool dummies : {false, true}) {
    const auto model = load_on_gpu(o);
    engine::EngineCore& core = model->core();
    const kv::Layout& layout = model->plan().layout;
    const std::vector<std::byte> fill(static_cast<size_t>(layout.block_stride * (layout.num_blocks - 1)), kNan);
    model->device().copy_to_device(model->runner().slabs().base() + layout.block_stride, fill.data(), fill.size());
    std::vector<bool> owned(static_cast<size_t>(layout.num_blocks));
    for (uint64_t id = 1; id <= 2; ++id) {
      engine::Request r;
      r.prompt = requests_[id].prompt;
      r.sampling.temperature = 0.8f;
      r.sampling.seed = id;
      r.max_tokens = kSteps + 100;
      r.ignore_eos = true;
      const auto sink = std::make_shared<CollectTokens>();
      core.add(engine::RequestId(id), r, sink);
      const std::vector<bool> had_before = owned;
      for (int step = 0; step < kSteps; ++step) {
        core.step();
        if (dummies) core.dummy_step(1 + step % 32, step % 3 * 16);
        for (uint32_t b = 1; b < owned.size(); ++b) {
          if (!core.scheduler().cache().pool().is_free(kv::BlockId(b))) owned[b] = true;
        }
      }
      ASSERT_EQ(sink->tokens.size(), static_cast<size_t>(kSteps));
      const auto computed = static_cast<int32_t>(r.prompt.size()) + kSteps - 1;
      expect_only_entries_of(*model, only_row(core.scheduler().cache()), computed, kNan, had_before);
      tokens[dummies ? 1 : 0].insert(tokens[dummies ? 1 : 0].end(), sink->tokens.begin(), sink->tokens.end());
      core.cancel(engine::RequestId(id));
    }
    EXPECT_TRUE(core.alive());
    EXPECT_TRUE(model->runner().slabs().null_block_is_zero());
    EXPECT_TRUE(model->runner().slabs().canary_intact());
    EXPECT_GT(core.stats().blocks_total, 2 * kSteps / layout.groups[0].spec.block_size);  // some are never owned
    EXPECT_EQ(core.stats().dummy_steps, dummies ? 2 * kSteps : 0);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

// Nobody said how large the cache is: every request may be as long as the model allows, and no more is taken than that.
TEST(DefaultCacheOnGpu, HoldsAllRequestsAtTheirLongest) {
  BZ_SKIP_WITHOUT_GPU();
  const TemporaryModel tiny(quantized_tiny());
  engine::LoadOptions o = test_options(tiny.path());
  o.device.name = "cuda:0";
  o.kv_cache_bytes = 0;
  o.max_num_seqs = 64;
  const auto model = engine::LoadedModel::load(o).value();
  const kv::CacheManager& cache = model->core().scheduler().cache();
  const int64_t needed = int64_t{o.max_num_seqs} * cache.num_blocks_for(model->plan().max_model_len);
  EXPECT_GE(cache.num_usable_blocks(), needed);
  EXPECT_LE(model->plan().layout.body_bytes, needed * model->plan().layout.block_stride * 102 / 100 + (4 << 20));
  EXPECT_EQ(model->info().max_request_tokens, model->plan().max_model_len);

  // What a fault record keeps makes the same blocks again.
  const auto again = engine::LoadedModel::load(model->plan().options).value();
  EXPECT_EQ(again->plan().layout.num_blocks, model->plan().layout.num_blocks);
  EXPECT_EQ(again->plan().layout.total_bytes, model->plan().layout.total_bytes);
}

// More could be used than there is: the cache takes its share, graphs and steps have room in the rest.
TEST(DefaultCacheOnGpu, TakesItsShareOfWhatIsFree) {
  BZ_SKIP_WITHOUT_GPU();
  engine::LoadOptions o = test_options(smollm2_or_die());
  o.device.name = "cuda:0";
  o.kv_cache_bytes = 0;
  o.max_num_seqs = 4096;  // of 8,192 tokens: 773 GB
  const int64_t free_before = gpu()->free_bytes().value();
  const auto model = engine::LoadedModel::load(o).value();
  EXPECT_LE(model->plan().layout.total_bytes, free_before * 9 / 10);
  EXPECT_GE(model->plan().layout.total_bytes, (free_before - (int64_t{8} << 30)) * 89 / 100);  // beside large logits
  ASSERT_TRUE(model->warm_up().ok());
  while (model->core().capture_one()) {
  }
  EXPECT_EQ(model->runner().stats().captures,
            static_cast<int64_t>(engine::decode_capture_sizes(o.max_num_seqs).size()));
  run_requests(*model, mixed_requests(kNumRequests, 90, 20, 49152, 7), {});
  EXPECT_TRUE(model->core().alive());
  EXPECT_TRUE(model->core().stats().null_block_clean);
}

std::string table_name(const testing::TestParamInfo<bool>& test) { return test.param ? "batch_invariant" : "default"; }
INSTANTIATE_TEST_SUITE_P(Ops, EngineOnGpu, testing::Values(false, true), table_name);
INSTANTIATE_TEST_SUITE_P(Ops, DefaultOpsOnGpu, testing::Values(false), table_name);
INSTANTIATE_TEST_SUITE_P(Ops, InvariantOpsOnGpu, testing::Values(true), table_name);

// A graph holds kernels alone; anything else is refused where it is captured.
TEST(CudaGraphDeathTest, AMemsetNodeIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  BZ_SKIP_WITHOUT_GPU();
  const auto capture_memset = [] {
    const auto stream = gpu()->create_stream();
    const auto buffer = gpu()->allocate(64);
    stream->begin_capture();
    cudaMemsetAsync(buffer->device(), 0, 64, static_cast<device::cuda::CudaStream&>(*stream).handle());
    (void)stream->end_capture();
  };
  EXPECT_DEATH(capture_memset(), "is not a kernel");
}

TEST(CudaGraph, ACaptureThatFailsIsOneLineWithTheWayOut) {
  BZ_SKIP_WITHOUT_GPU();
  const auto stream = gpu()->create_stream();
  stream->begin_capture();
  EXPECT_FALSE(gpu()->allocate(64).ok());  // a capture forbids it, and is spoiled by it
  const auto graph = stream->end_capture();
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.status().message(), testing::HasSubstr("--graphs none"));
  // The stream goes on.
  stream->begin_capture();
  EXPECT_TRUE(stream->end_capture().ok());
}

}  // namespace
}  // namespace bz::test
