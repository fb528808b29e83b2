// Speculation changes how many steps an answer takes, never the answer: drafts of the text itself, and of an oracle
// that is right with any probability, so that every number of accepted drafts occurs.
#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/cpu_stream.h"
#include "device/registry.h"
#include "ops/sample_finish.h"
#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

constexpr size_t kNumRequests = 64;
constexpr int32_t kDrafts = 4;
constexpr int32_t kVocab = 320;

// Proposes the true next tokens of requests that it knows, each with some probability; the others are wrong.
struct Oracle {
  std::vector<std::vector<int32_t>> texts;  // prompt, then the answer
  double right = 1.0;

  const std::vector<int32_t>* text_of(const int32_t* tokens, int32_t len) const {
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const std::vector<int32_t>& text) {
      return text.size() >= static_cast<size_t>(len) && std::equal(tokens, tokens + len, text.begin());
    });
    return found == texts.end() ? nullptr : &*found;
  }
};
Oracle g_oracle;

void propose(const ops::DraftParams& p) {
  for (int32_t b = 0; b < p.view.padded_rows; ++b) {
    if (ops::num_samples(p.view, p.sample_row, b) == 0) continue;
    const int32_t row = p.view.row_index[b], len = p.row_state[row].num_computed + 1;
    ops::RowDraft& draft = p.drafts[row];
    std::minstd_rand random(static_cast<uint32_t>(len * 31 + row + 1));
    random.discard(3);
    draft.count =
        random() % 3 == 0 ? static_cast<int32_t>(random() % static_cast<uint32_t>(p.max_tokens)) : p.max_tokens;
    const std::vector<int32_t>* text = g_oracle.text_of(p.history.row(row), len);
    for (int32_t i = 0; i < draft.count; ++i) {
      const auto at = static_cast<size_t>(len + i);
      const int32_t token = text != nullptr && at < text->size() ? (*text)[at] : 0;
      const bool right = random() % 1000 < static_cast<uint32_t>(g_oracle.right * 1000);
      draft.tokens[i] = right ? token : (token + 1) % kVocab;
    }
  }
}

void launch_oracle(device::Stream& stream, const ops::DraftParams& p) {
  const auto op = [](const ops::DraftParams& params, device::cpu::Worker& worker) {
    if (worker.index() == 0) propose(params);
  };
  device::cpu::enqueue(stream, "draft_by_oracle", p, +op);
}

// A GPU's oracle thinks on the host, between the ops of a step without graphs.
void launch_oracle_on_gpu(device::Stream& stream, const ops::DraftParams& p) {
  static const auto gpu = device::create_device({.name = "cuda:0"}).value();
  stream.synchronize();
  const auto fetch = [](const auto* from, int64_t count) {
    std::vector<std::decay_t<decltype(*from)>> here(static_cast<size_t>(count));
    gpu->copy_to_host(here.data(), from, here.size() * sizeof(*from));
    return here;
  };
  constexpr int64_t kTableRows = kNumRequests + 1;
  const auto num_valid_rows = fetch(p.view.num_valid_rows, 1);
  const auto row_index = fetch(p.view.row_index, p.view.padded_rows);
  const auto logits_start = fetch(p.view.logits_start, p.view.padded_rows + 1);
  const auto sample_row = fetch(p.sample_row, p.view.padded_rows);
  const auto row_state = fetch(p.row_state, kTableRows);
  auto history = fetch(p.history.tokens, kTableRows * p.history.stride);
  auto drafts = fetch(p.drafts, kTableRows);
  ops::DraftParams here = p;
  here.view.num_valid_rows = num_valid_rows.data(), here.view.row_index = row_index.data();
  here.view.logits_start = logits_start.data(), here.sample_row = sample_row.data();
  here.row_state = row_state.data(), here.history.tokens = history.data(), here.drafts = drafts.data();
  propose(here);
  gpu->copy_to_device(p.drafts, drafts.data(), drafts.size() * sizeof(ops::RowDraft));
}

class Speculation : public testing::TestWithParam<std::string> {
 protected:
  Speculation() : file_(quantized_tiny()) {}
  void SetUp() override {
    BZ_SKIP_WITHOUT_TEST_DEVICE();
    expect_answers_of(options());
  }
  // Of requests one by one, without drafts and graphs.
  void expect_answers_of(engine::LoadOptions o) {
    o.graphs = engine::GraphMode::kNone;
    o.num_draft_tokens = 0;
    expected_ = run_requests(*load(o, GetParam()), requests_, {.at_once = 1});
    g_oracle.texts.clear();
    for (size_t i = 0; i < requests_.size(); ++i) {
      g_oracle.texts.push_back(requests_[i].prompt);
      for (const Sampled& s : expected_[i]) g_oracle.texts.back().push_back(s.token);
    }
  }
  engine::LoadOptions options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.max_num_seqs = static_cast<int32_t>(kNumRequests);
    o.num_draft_tokens = kDrafts;
    return o;
  }
  engine::LoadOptions with_oracle(engine::LoadOptions o, double right) {
    g_oracle.right = right;
    const auto kind = tests_use_gpu() ? device::DeviceKind::kCuda : device::DeviceKind::kCpu;
    table_ = *ops::op_table_for(kind, true).value();
    table_.draft = tests_use_gpu() ? launch_oracle_on_gpu : launch_oracle;
    if (tests_use_gpu()) o.graphs = engine::GraphMode::kNone;
    o.ops = &table_;
    return o;
  }
  engine::EngineStats expect_same(const engine::LoadOptions& o, const RunStyle& style) {
    const auto model = load(o, GetParam());
    EXPECT_EQ(first_difference(expected_, run_requests(*model, requests_, style)), "");
    EXPECT_TRUE(model->core().alive());
    EXPECT_EQ(model->core().scheduler().cache().num_used_blocks(), 0);
    if (o.kv_sanitize) {
      EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
    }
    return model->core().stats();
  }

  TemporaryModel file_;
  std::vector<engine::Request> requests_ = mixed_requests(kNumRequests, 60, 24, kVocab, 11);
  Trace expected_;
  ops::OpTable table_;
};

TEST_P(Speculation, DraftsOfTheTextItself) {
  engine::LoadOptions o = options();
  o.kv_sanitize = true;
  for (const size_t at_once : {size_t{1}, kNumRequests}) expect_same(o, {.at_once = at_once});
}

TEST_P(Speculation, AnOracleThatIsRightWithAnyProbability) {
  (void)load(options(), GetParam());  // chooses the instruction set
  for (const double right : {0.0, 0.5, 0.9, 1.0}) {
    engine::LoadOptions o = with_oracle(options(), right);
    o.kv_sanitize = right == 0.5;
    const engine::EngineStats s = expect_same(o, {.dummy_between = right == 0.9});
    const auto outputs = std::accumulate(expected_.begin(), expected_.end(), size_t{0},
                                         [](size_t n, const auto& request) { return n + request.size(); });
    EXPECT_GT(s.spec_draft_tokens, static_cast<int64_t>(outputs) / 2);
    if (right == 0.0) {
      EXPECT_LT(s.spec_accepted_tokens, s.spec_draft_tokens / 50);
    }
    if (right == 1.0) {
      EXPECT_GT(s.spec_accepted_tokens, s.spec_draft_tokens * 9 / 10);
    }
    if (right == 0.5) {  // every number of accepted drafts occurs
      int64_t all = s.spec_drafts;
      for (const int64_t place : s.spec_accepted_by_place) {
        EXPECT_GT(place, 0);
        EXPECT_LT(place, all);
        all = place;
      }
    }
  }
}

TEST_P(Speculation, AfterPreemptionAndInSmallChunks) {
  (void)load(options(), GetParam());
  engine::LoadOptions o = options();
  o.block_size = 4;
  if (tests_use_gpu()) expect_answers_of(o);  // sums are cut at the ends of blocks there
  o = with_oracle(o, 0.7);
  o.kv_cache_bytes = 64 << 10;
  o.max_num_batched_tokens = 80;
  EXPECT_GT(expect_same(o, {}).requests_preempted, 1);
}

TEST_P(Speculation, PrefixesAreCached) {
  (void)load(options(), GetParam());
  engine::LoadOptions o = options();
  o.block_size = 4;
  if (tests_use_gpu()) expect_answers_of(o);
  o = with_oracle(o, 0.7);
  o.prefix_caching = true;
  o.kv_sanitize = true;
  const auto model = load(o, GetParam());
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(first_difference(expected_, run_requests(*model, requests_, {.at_once = 9})), "");
  EXPECT_GT(model->core().stats().prefix_hit_tokens, 500);
  EXPECT_THAT(model->core().sanitizer()->violations(), testing::IsEmpty());
}

TEST_P(Speculation, RequestsThatGoTokenByTokenBesideThoseThatDoNot) {
  (void)load(options(), GetParam());
  std::vector<engine::Request> all = mixed_requests(kNumRequests, 60, 24, kVocab, 11);
  std::vector<engine::Request> asking = all;
  ask_for_everything(asking, kVocab);
  for (size_t i = 0; i < all.size(); i += 2) all[i] = asking[i];
  requests_ = all;
  expect_answers_of(options());
  EXPECT_GT(expect_same(with_oracle(options(), 0.7), {}).spec_accepted_tokens, 0);
}

// Rows with fewer drafts than planned stand before rows that are told log probabilities.
TEST_P(Speculation, LogProbabilitiesStayWithTheirRequest) {
  (void)load(options(), GetParam());
  for (size_t i = 1; i < requests_.size(); i += 2) requests_[i].logprobs = 2;
  const auto logprobs = [this](engine::LoadedModel& model) {
    Session session(model);
    for (const engine::Request& r : requests_) session.submit(r);
    session.finish_all_work();
    std::vector<std::vector<engine::TokenLogprobs>> all;
    for (size_t i = 0; i < requests_.size(); ++i) all.push_back(session.logprobs(i));
    return all;
  };
  engine::LoadOptions alone = options();
  alone.num_draft_tokens = 0;
  const auto expected = logprobs(*load(alone, GetParam()));
  const auto speculating = load(with_oracle(options(), 0.7), GetParam());
  const auto actual = logprobs(*speculating);
  for (size_t i = 1; i < requests_.size(); i += 2) {
    ASSERT_EQ(actual[i].size(), expected[i].size());
    for (size_t t = 0; t < expected[i].size(); ++t) {
      EXPECT_EQ(actual[i][t].token, expected[i][t].token) << "request " << i << ", output " << t;
      EXPECT_EQ(actual[i][t].logprob, expected[i][t].logprob);
      EXPECT_EQ(actual[i][t].top_tokens, expected[i][t].top_tokens);
    }
  }
  EXPECT_GT(speculating->core().stats().spec_accepted_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Isa, Speculation, testing::ValuesIn(batch_invariant_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
