// The samplers: choice, log probability, distribution, RowState and results, PAD-3 and PAD-9b.
#include <algorithm>
#include <map>

#include "ops/cpu/ops_test_util.h"
#include "ops/cpu/philox.h"

namespace bz::ops::cpu::test {
namespace {

// Rows of a sampling step. Row b is table row b + 1 and has b + 1 query tokens.
struct Step {
  Step(int32_t live, int32_t padded, int32_t vocab)
      : valid(live),
        logits(static_cast<size_t>(padded * vocab), kNan),
        state(static_cast<size_t>(padded) + 2, RowState{100, 7, 3, 5}),
        history((static_cast<size_t>(padded) + 2) * kStride, -4),
        vocab_(vocab),
        padded_(padded) {
    for (int32_t b = 0; b < padded; ++b) {
      row_index.push_back(b < live ? b + 1 : 0);
      query_start.push_back(query_start.back() + (b < live ? b + 1 : 0));
      logits_start.push_back(logits_start.back() + (b < live ? 1 : 0));
      sample_row.push_back(b < live);
      sampling.push_back({0.0f, 1.0f, 0, 0.0f, 1});
    }
    for (auto& h : headers) h = Guarded<StepResultHeader>(1, StepResultHeader{0, StepError::kPastReserved, -5});
    for (auto& e : logits_ends) e = Guarded<int32_t>(static_cast<size_t>(padded), -9);
    for (auto& r : results) r = Guarded<RowResult>(static_cast<size_t>(padded), RowResult{-9, 9});
  }
  float* row(int32_t b) { return logits.data() + b * vocab_; }
  void fill(int32_t b, uint32_t seed, float scale = 2.0f) {
    const auto v = random_floats(static_cast<size_t>(vocab_), seed, scale);
    std::memcpy(row(b), v.data(), v.size() * sizeof(float));
  }
  // Runs and returns the results of the current step.
  std::vector<RowResult> run(const OpTable& ops, bool random, int threads = 1) {
    SampleParams p{};
    p.logits = tensor_f32(logits.data(), padded_, vocab_);
    p.sampling = sampling.data();
    p.sample_row = sample_row.data();
    p.view.padded_rows = p.view.padded_logits = padded_;
    p.view.samples_per_row = 1;
    p.view.num_valid_rows = &valid;
    p.view.row_index = row_index.data();
    p.view.query_start = query_start.data();
    p.view.logits_start = logits_start.data();
    p.row_state = state.data();
    p.history = {history.data(), kStride};
    p.step_count = &step_count;
    p.error_state = &error;
    for (int i = 0; i < SampleParams::kRingSlots; ++i) {
      p.result_headers[i] = headers[i].data();
      p.results[i] = results[i].data();
      p.logits_ends[i] = logits_ends[i].data();
    }
    Guarded<double> scratch((ops.sample_scratch_bytes(padded_, vocab_) + 7) / 8, std::nan(""));
    p.scratch = scratch.data();
    p.scratch_bytes = scratch.size() * 8;
    run_op(random ? ops.sample_random : ops.sample_greedy, p, threads);
    scratch.check("scratch");
    state.check("row state");
    history.check("history");
    for (auto& h : headers) h.check("header");
    for (auto& r : results) r.check("results");
    for (auto& e : logits_ends) e.check("logits ends");
    for (int32_t b = 0; b < padded_; ++b) EXPECT_EQ(logits_ends[(step_count - 1) % 3][b], logits_start[b + 1]);
    const auto& now = results[(step_count - 1) % 3];
    return {now.data(), now.data() + now.size()};
  }

  kv::NumValidRows valid;
  std::vector<int32_t> row_index, query_start{0}, logits_start{0}, sample_row;
  std::vector<RowSampling> sampling;
  Floats logits;
  Guarded<RowState> state;
  static constexpr int32_t kStride = 102;
  Guarded<int32_t> history;
  uint64_t step_count = 5;  // result slot 1
  StepResultHeader error{42, StepError::kNone, 0};
  Guarded<StepResultHeader> headers[3];
  Guarded<RowResult> results[3];
  Guarded<int32_t> logits_ends[3];

 private:
  int32_t vocab_, padded_;
};

TEST(Sample, GreedyTakesTheLowestIdOfTheLargest) {
  for (const OpTable* ops : all_tables()) {
    for (const int32_t vocab : {1, 15, 16, 17, 1023, 1024, 5000}) {
      Step s(3, 5, vocab);
      for (int b = 0; b < 3; ++b) s.fill(b, static_cast<uint32_t>(b + vocab));
      s.row(1)[vocab - 1] = s.row(1)[vocab / 2] = 50.0f;  // a tie
      const auto out = s.run(*ops, false, 2);
      for (int b = 0; b < 3; ++b) {
        const float* x = s.row(b);
        const auto want = std::max_element(x, x + vocab) - x;
        EXPECT_EQ(out[static_cast<size_t>(b)].token, want) << ops->isa << " vocab " << vocab;
        double sum = 0;
        for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(x[i]) - x[want]);
        EXPECT_NEAR(out[static_cast<size_t>(b)].logprob, -std::log(sum), 2e-6 * (1 + std::log(sum))) << ops->isa;
      }
      EXPECT_EQ(out[3].token, kTokenNone);
      EXPECT_EQ(out[4].token, kTokenNone);
    }
  }
}

TEST(Sample, WritesTheStateOfLiveRowsAndTheResultSlotOfThisStep) {
  for (const OpTable* ops : all_tables()) {
    for (const bool random : {false, true}) {
      Step s(4, 6, 64);
      for (int b = 0; b < 4; ++b) s.fill(b, static_cast<uint32_t>(b));
      s.sample_row[1] = 0;  // in the middle of its prompt
      s.row_index[2] = 0;   // nulled by prepare
      s.row(3)[9] = kNan;   // bad logits
      const auto out = s.run(*ops, random, 2);
      EXPECT_GE(out[0].token, 0);
      EXPECT_EQ(out[1].token, kTokenNone);
      EXPECT_EQ(out[2].token, kTokenNone);
      EXPECT_EQ(out[3].token, kTokenNan);
      for (int i = 1; i < 4; ++i) EXPECT_EQ(out[static_cast<size_t>(i)].logprob, 0.0f);
      const auto expect = [&](size_t row, RowState want) {
        EXPECT_EQ(s.state[row].num_computed, want.num_computed) << row;
        EXPECT_EQ(s.state[row].last_token, want.last_token) << row;
        EXPECT_EQ(s.state[row].num_accepted, want.num_accepted) << row;
        EXPECT_EQ(s.state[row].num_sampled, want.num_sampled) << row;
      };
      expect(0, {100, 7, 3, 5});  // the null row never changes
      expect(1, {101, out[0].token, 1, 6});
      expect(2, {102, 7, 1, 5});
      expect(3, {100, 7, 3, 5});
      expect(4, {104, 7, 1, 5});
      expect(5, {100, 7, 3, 5});
      // Row 1 holds 101 tokens now, and history[101] is the one sampled; the others sampled nothing, or have no room.
      for (size_t i = 0; i < s.history.size(); ++i) {
        EXPECT_EQ(s.history[i], i == size_t{Step::kStride} + 101 ? out[0].token : -4) << i;
      }
      EXPECT_EQ(s.headers[1][0].sequence, 42u);
      EXPECT_EQ(s.headers[1][0].error, StepError::kNone);
      EXPECT_EQ(s.headers[1][0].num_valid_rows, 4);
      EXPECT_EQ(s.headers[0][0].num_valid_rows, -5);
      EXPECT_EQ(s.results[0][0].token, -9);
      EXPECT_EQ(s.results[2][0].token, -9);
    }
  }
}

// What the definitions keep, by sorting.
std::map<int32_t, double> allowed(const float* x, int32_t n, const RowSampling& s) {
  std::vector<std::pair<double, int32_t>> all;
  const double max = *std::max_element(x, x + n);
  for (int32_t i = 0; i < n; ++i) all.push_back({std::exp((x[i] - max) / s.temperature), -i});
  std::sort(all.rbegin(), all.rend());
  if (s.top_k > 0 && s.top_k < n) all.resize(static_cast<size_t>(s.top_k));
  double total = 0, mass = 0;
  for (const auto& a : all) total += a.first;
  size_t keep = 0;
  while (keep < all.size() && (keep == 0 || mass < s.top_p * total)) mass += all[keep++].first;
  all.resize(keep);
  while (all.size() > 1 && all.back().first < s.min_p) all.pop_back();
  total = 0;
  for (const auto& a : all) total += a.first;
  std::map<int32_t, double> result;
  for (const auto& a : all) result[-a.second] = a.first / total;
  return result;
}

TEST(Sample, DrawsWhatTheFiltersAllowAsOftenAsTheyShould) {
  const RowSampling kinds[] = {
      {1.0f, 1.0f, 0, 0.0f, 3}, {0.7f, 1.0f, 5, 0.0f, 4},  {1.3f, 0.8f, 0, 0.0f, 5},
      {1.0f, 1.0f, 0, 0.2f, 6}, {1.0f, 0.7f, 12, 0.1f, 7}, {1.0f, 0.0f, 0, 0.0f, 8},
  };
  for (const OpTable* ops : all_tables()) {
    for (const RowSampling& kind : kinds) {
      constexpr int32_t kRows = 64, kVocab = 50;
      const int rounds = 60;
      Step s(kRows, kRows, kVocab);
      std::map<int32_t, int> count;
      for (int b = 0; b < kRows; ++b) s.fill(b, 77, 1.5f);
      for (int b = 0; b < kRows; ++b) s.row(b)[30] = s.row(b)[31] = s.row(b)[3];  // ties
      const auto want = allowed(s.row(0), kVocab, kind);
      for (int round = 0; round < rounds; ++round) {
        for (int b = 0; b < kRows; ++b) {
          s.sampling[static_cast<size_t>(b)] = kind;
          s.sampling[static_cast<size_t>(b)].seed = kind.seed * 1000003u + static_cast<uint64_t>(round * kRows + b);
        }
        for (const RowResult& r : s.run(*ops, true, 2)) count[r.token] += 1;
      }
      for (const auto& [token, n] : count) EXPECT_EQ(want.count(token), 1u) << ops->isa << " drew " << token;
      const double draws = kRows * rounds;
      for (const auto& [token, p] : want) {
        EXPECT_NEAR(count[token] / draws, p, 5 * std::sqrt(p * (1 - p) / draws) + 1e-9)
            << ops->isa << " token " << token;
      }
    }
  }
}

// PAD-9b: keyed by (seed, output index), not by place, mates or threads; all fast tables agree.
TEST(Sample, BitsDependOnTheRowAlone) {
  constexpr int32_t kVocab = 3000;
  const RowSampling kind{0.9f, 0.95f, 200, 0.001f, 11};
  for (const OpTable* ops : all_tables()) {
    Step one(1, 1, kVocab);
    one.fill(0, 5);
    one.sampling[0] = kind;
    const RowResult want = one.run(*ops, true)[0];
    for (const int place : {0, 3, 6}) {
      Step many(7, 9, kVocab);
      for (int b = 0; b < 7; ++b) {
        many.fill(b, static_cast<uint32_t>(b) + 50);
        many.sampling[static_cast<size_t>(b)] = {1.1f, 0.5f, 0, 0.0f, 99};
      }
      many.fill(place, 5);
      many.sampling[static_cast<size_t>(place)] = kind;
      const RowResult got = many.run(*ops, true, 3)[static_cast<size_t>(place)];
      EXPECT_EQ(got.token, want.token) << ops->isa;
      EXPECT_TRUE(same_bits(&got.logprob, &want.logprob, 1)) << ops->isa;
    }
    one.state[1].num_sampled = 5;
    EXPECT_EQ(one.run(*ops, true)[0].token, want.token);
  }
}

TEST(Sample, GreedyRowsInARandomStep) {
  for (const OpTable* ops : all_tables()) {
    Step a(2, 2, 500), b(2, 2, 500);
    for (Step* s : {&a, &b}) {
      s->fill(0, 1);
      s->fill(1, 2);
    }
    const auto greedy = a.run(*ops, false), random = b.run(*ops, true);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(greedy[i].token, random[i].token) << ops->isa;
  }
}

TEST(Sample, ExtremeLogits) {
  for (const OpTable* ops : all_tables()) {
    Step s(2, 2, 40);
    for (int i = 0; i < 40; ++i) {
      s.row(0)[i] = -INFINITY;
      s.row(1)[i] = i == 20 ? 3e38f : -3e38f;
    }
    s.row(0)[7] = -1.0f;
    for (auto& k : s.sampling) k = {1.0f, 0.9f, 3, 0.1f, 2};
    const auto out = s.run(*ops, true);
    EXPECT_EQ(out[0].token, 7) << ops->isa;
    EXPECT_EQ(out[1].token, 20) << ops->isa;
    EXPECT_EQ(out[0].logprob, 0.0f) << ops->isa;
  }
}

// Known answers of Random123's philox4x32-10 (its kat_vectors file).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace bz::ops::cpu::test
