// The one step path carries every kind of cache: an engine whose model has a layer of each, and checks every byte it
// reads. Padded, beside dummy steps, preempted, in graphs or not: the answers are those of a model that never forgets.
#include <gtest/gtest.h>

#include "device/registry.h"
#include "engine/engine_core.h"
#include "support/every_kind_model.h"

namespace bz::test {
namespace {

struct Answer final : engine::Sink {
  void on_output(const engine::Output& output) override {
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    error += output.error;
  }
  std::vector<int32_t> tokens;
  std::string error;
};

struct Setting {
  const char* name;
  engine::GraphMode graphs = engine::GraphMode::kFull;
  int32_t num_blocks = 400;
  int32_t min_rows = 0;
  bool dummies = false;
  bool share_tables = false;
};
void PrintTo(const Setting& s, std::ostream* out) { *out << s.name; }

class EveryKind : public testing::TestWithParam<Setting> {};

TEST_P(EveryKind, AnswersAreThoseOfAModelThatNeverForgets) {
  const Setting& s = GetParam();
  constexpr int32_t kMaxModelLen = 120, kMaxRows = 8, kOutputs = 30;
  const auto device = device::create_device({.num_threads = 2}).value();
  const ops::OpTable* ops = ops::op_table_for(device::DeviceKind::kCpu).value();
  const auto model = every_kind_model(kMaxModelLen, 0, s.share_tables);
  const int64_t slab = s.share_tables ? 8 * 192 + 128 : 128;  // the full layer's page, and its pooled entries'
  const kv::Layout layout =
      kv::make_layout({.layers = model->cache_specs(), .cache_bytes = 4096 + s.num_blocks * slab, .block_size = 8})
          .value();
  ASSERT_EQ(layout.block_stride, slab);
  ASSERT_EQ(kv::num_tables(make_cache_config(layout, 2, kMaxModelLen).groups), s.share_tables ? 4 : 8);
  engine::RunnerConfig config;
  config.limits = {64, kMaxRows, 1000};
  config.mode = s.graphs;
  config.cache = kv::make_cache_config(layout, kMaxRows + 1, kMaxModelLen);
  config.cache.max_in_flight = 64;
  config.null_guard = device::NullGuard::kHard;
  const auto runner = engine::GraphRunner::create(*device, *ops, *model, layout, config).value();
  engine::EngineCore core(*runner, {kMaxRows, 64, kMaxModelLen, {}}, config.cache,
                          std::make_unique<engine::KvSanitizer>(*device, *runner));
  core.set_min_rows(s.min_rows);

  std::vector<std::shared_ptr<Answer>> answers;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 14; ++i) {
    engine::Request request;
    for (int32_t t = 0; t < 1 + i * 29 % 83; ++t) request.prompt.push_back((i * 31 + t * 7) % kEveryKindVocab);
    request.max_tokens = kOutputs;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    prompts.push_back(request.prompt);
    answers.push_back(std::make_shared<Answer>());
    ASSERT_TRUE(core.check(request).ok());
    core.add(engine::RequestId(static_cast<uint64_t>(i + 1)), request, answers.back());
  }
  for (int32_t steps = 0; core.step(); ++steps) {
    if (s.dummies) core.dummy_step(1 + steps % kMaxRows, 8 * (steps % 7));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]->error, "") << "request " << i;
    EXPECT_EQ(answers[i]->tokens, next_tokens(prompts[i], kOutputs)) << "request " << i;
  }
  EXPECT_EQ(core.sanitizer()->violations(), std::vector<std::string>());
  EXPECT_EQ(core.stats().requests_preempted > 0, s.num_blocks < 400);
  EXPECT_TRUE(core.stats().null_block_clean);
}

INSTANTIATE_TEST_SUITE_P(Each, EveryKind,
                         testing::Values(Setting{"graphs"}, Setting{"one_by_one", engine::GraphMode::kNone},
                                         Setting{"padded", engine::GraphMode::kFull, 400, 8},
                                         Setting{"beside_dummies", engine::GraphMode::kFull, 400, 0, true},
                                         Setting{"preempted", engine::GraphMode::kFull, 90, 3, true},
                                         Setting{"sharing_tables", engine::GraphMode::kFull, 400, 3, true, true}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace bz::test
