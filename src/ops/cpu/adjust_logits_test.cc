// adjust_logits and logprobs against transformers' and torch's own (tests/golden/sampling.json), and what they leave
// alone: rows that do not sample, padding, rows that do not ask.
#include <nlohmann/json.hpp>

#include "formats/test_files.h"
#include "ops/cpu/ops_test_util.h"

namespace bz::ops::cpu::test {
namespace {

using nlohmann::json;

constexpr int32_t kPadding = 3;  // batch rows
constexpr int32_t kStride = 96;

// Every case is a batch row of one step: row b is table row b + 1, and all but its first token are this step's. Every
// third row wants the logits of its last two tokens, the first of them NaN except where a test fills it.
struct Step {
  explicit Step(const json& golden) : cases(golden["cases"]), vocab(golden["vocab"]) {
    const auto live = static_cast<int32_t>(cases.size());
    rows = live + kPadding;
    history = Guarded<int32_t>(static_cast<size_t>(rows + 1) * kStride, -1);
    for (int32_t b = 0; b < rows; ++b) {
      if (b < live) add_row(b, cases[static_cast<size_t>(b)]);
      query_start.push_back(static_cast<int32_t>(token_row.size()));
      logits_start.push_back(static_cast<int32_t>(logits_token.size()));
      row_index.push_back(b < live ? b + 1 : 0);
      sample_row.push_back(b < live);
      sampling.resize(static_cast<size_t>(b) + 1);
      next_token.push_back(0);
    }
    num_valid_rows = kv::NumValidRows(live);
    num_valid_logits = NumValidLogits(logits_start.back());
    padded_logits = logits_start.back() + kPadding;
    logits_token.resize(static_cast<size_t>(padded_logits), -1);
    logits = Floats(static_cast<size_t>(padded_logits * vocab), kNan);
    for (int32_t b = 0; b < live; ++b) {
      const auto x = cases[static_cast<size_t>(b)]["logits"].get<std::vector<float>>();
      std::copy(x.begin(), x.end(), logits.data() + (logits_start[static_cast<size_t>(b) + 1] - 1) * vocab);
    }
  }

  void add_row(int32_t b, const json& c) {
    auto ids = c["prompt"].get<std::vector<int32_t>>();
    const auto prompt_len = static_cast<int32_t>(ids.size());
    for (const json& id : c["outputs"]) ids.push_back(id);
    std::copy(ids.begin(), ids.end(), history.data() + (b + 1) * kStride);
    for (size_t i = ids.size() > 1 ? 1 : 0; i < ids.size(); ++i) {
      token_ids.push_back(ids[i]);
      positions.push_back(static_cast<int32_t>(i));
      token_row.push_back(b);
    }
    const auto last = static_cast<int32_t>(token_row.size()) - 1;
    if (b % 3 == 0 && ids.size() > 2) logits_token.push_back(last - 1);
    logits_token.push_back(last);
    RowSampling s{};
    s.adjust = {c["repetition_penalty"], c["presence_penalty"],
                c["frequency_penalty"],  prompt_len,
                c["min_tokens"],         static_cast<int32_t>(biases.size())};
    for (const json& id : c["masked"]) biases.push_back({id, 0.0f});
    for (const json& bias : c["logit_bias"]) biases.push_back({bias[0], bias[1]});
    s.adjust.num_masked = static_cast<int32_t>(c["masked"].size());
    s.adjust.num_bias = static_cast<int32_t>(c["logit_bias"].size());
    sampling.push_back(s);
  }

  StepView view() const {
    StepView v{};
    v.padded_rows = rows;
    v.padded_tokens = static_cast<int32_t>(token_row.size());
    v.padded_logits = padded_logits;
    v.samples_per_row = 1;
    v.num_valid_rows = &num_valid_rows;
    v.num_valid_logits = &num_valid_logits;
    v.token_ids = token_ids.data();
    v.positions = positions.data();
    v.token_row = token_row.data();
    v.row_index = row_index.data();
    v.query_start = query_start.data();
    v.logits_start = logits_start.data();
    v.logits_token = logits_token.data();
    return v;
  }

  Floats adjust(const OpTable& ops, int threads) {
    AdjustLogitsParams p{};
    p.logits = tensor_f32(logits.data(), padded_logits, vocab);
    Floats adjusted(static_cast<size_t>(rows * vocab), kNan);
    p.adjusted = tensor_f32(adjusted.data(), rows, vocab);
    p.view = view();
    p.sampling = sampling.data();
    p.sample_row = sample_row.data();
    p.history = {history.data(), kStride};
    p.step_count = &step_count;
    p.ring[1].biases = biases.data();
    Guarded<int32_t> counts(static_cast<size_t>(rows * vocab), 12345);  // what an earlier step left there
    p.counts = counts.data();
    run_op(ops.adjust_logits, p, threads);
    adjusted.check("adjusted");
    counts.check("counts");
    history.check("history");
    return adjusted;
  }

  Guarded<LogprobResult> logprobs(const OpTable& ops, const std::vector<RowResult>& sampled, int threads) {
    LogprobsParams p{};
    p.logits = tensor_f32(logits.data(), padded_logits, vocab);
    p.sampling = sampling.data();
    p.sample_row = sample_row.data();
    p.next_token = next_token.data();
    p.view = view();
    p.step_count = &step_count;
    p.results[1] = sampled.data();
    Guarded<LogprobResult> results(static_cast<size_t>(padded_logits), LogprobResult{-9, 9, 9, 9, {}, {}});
    p.logprob_results[1] = results.data();
    run_op(ops.logprobs, p, threads);
    results.check("logprobs");
    return results;
  }

  const json& cases;
  int32_t vocab, rows = 0, padded_logits = 0;
  uint64_t step_count = 5;  // ring slot 1
  kv::NumValidRows num_valid_rows;
  NumValidLogits num_valid_logits;
  std::vector<int32_t> token_ids, positions, token_row, row_index, query_start{0}, logits_start{0}, logits_token,
      sample_row, next_token;
  std::vector<RowSampling> sampling;
  std::vector<LogitBias> biases;
  Guarded<int32_t> history;
  Floats logits;
};

const json& golden() {
  static const json g = json::parse(formats::read_test_file(formats::golden_path("sampling.json")));
  return g;
}

TEST(AdjustLogits, EqualsTransformersAndTorch) {
  for (const OpTable* ops : all_tables()) {
    Step step(golden());
    step.sample_row[4] = 0;
    step.row_index[5] = 0;  // nulled by prepare
    const Floats adjusted = step.adjust(*ops, 2);
    for (int32_t b = 0; b < step.rows; ++b) {
      const float* got = adjusted.data() + b * step.vocab;
      if (b == 4 || b == 5 || b >= step.num_valid_rows.value()) {
        EXPECT_TRUE(all_zero(got, static_cast<size_t>(step.vocab))) << b;
        continue;
      }
      const json& want = step.cases[static_cast<size_t>(b)]["adjusted"];
      for (int32_t i = 0; i < step.vocab; ++i) {
        const json& value = want[static_cast<size_t>(i)];
        EXPECT_EQ(got[i], value.is_null() ? -INFINITY : value.get<float>()) << ops->isa << " case " << b << " id " << i;
      }
    }
  }
}

TEST(Logprobs, EqualTorchAndGoToThoseWhoAsk) {
  for (const OpTable* ops : all_tables()) {
    Step step(golden());
    std::vector<RowResult> sampled(static_cast<size_t>(step.rows), RowResult{kTokenNone, 0});
    for (size_t b = 0; b < step.cases.size(); ++b) {
      sampled[b].token = step.cases[b]["token"];
      if (b % 5 != 1) step.sampling[b].num_top_logprobs = 5;
    }
    const auto results = step.logprobs(*ops, sampled, 2);
    for (size_t b = 0; b < step.cases.size(); ++b) {
      const json& want = step.cases[b];
      const LogprobResult& got = results[static_cast<size_t>(step.logits_start[b + 1] - 1)];
      if (b % 5 == 1) {
        EXPECT_EQ(got.token, kTokenNone);
        continue;
      }
      EXPECT_EQ(got.token, want["token"].get<int32_t>());
      EXPECT_NEAR(got.logprob, want["logprob"].get<double>(), 1e-6);
      EXPECT_EQ(got.rank, want["rank"].get<int32_t>());
      ASSERT_EQ(got.num_top, 5);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(got.top_tokens[i], want["top_tokens"][i].get<int32_t>()) << ops->isa << " case " << b;
        EXPECT_NEAR(got.top_logprobs[i], want["top_logprobs"][i].get<double>(), 1e-6);
      }
      // Logits with a NaN have none.
      if (step.logits_start[b + 1] - step.logits_start[b] == 2) {
        EXPECT_EQ(results[static_cast<size_t>(step.logits_start[b])].token, kTokenNone);
      }
    }
    for (int32_t l = step.num_valid_logits.value(); l < step.padded_logits; ++l) {
      EXPECT_EQ(results[static_cast<size_t>(l)].token, kTokenNone);
    }
  }
}

// Of a prompt: the token after each, in the step or behind it.
TEST(Logprobs, FollowThePrompt) {
  Step step(golden());
  std::fill_n(step.logits.data(), step.logits.size(), 0.25f);
  const size_t b = 3;
  ASSERT_EQ(step.logits_start[b + 1] - step.logits_start[b], 2);
  step.sampling[b].num_top_logprobs = 0;
  step.sample_row[b] = 0;
  step.next_token[b] = 17;
  const auto results = step.logprobs(reference_ops(), std::vector<RowResult>(static_cast<size_t>(step.rows)), 1);
  const auto first = static_cast<size_t>(step.logits_start[b]);
  EXPECT_EQ(results[first].token, step.token_ids[static_cast<size_t>(step.query_start[b + 1]) - 1]);
  EXPECT_EQ(results[first + 1].token, 17);
  EXPECT_EQ(results[first + 1].num_top, 0);
  EXPECT_EQ(results[first + 1].rank, 18);  // all are alike: the lower id first
  EXPECT_NEAR(results[first + 1].logprob, -std::log(64.0), 1e-6);
}

}  // namespace
}  // namespace bz::ops::cpu::test
