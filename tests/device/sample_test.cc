// The samplers, their penalties and log probabilities, and drafts on the GPU against the CPU.
#include "device/step_twin.h"

namespace bz::test {
namespace {

// A sampler on both sides. logits [L][vocab], adjusted [R][vocab] or null.
void run_sampler(Step& step, bool random, float* logits, const float* adjusted, int32_t vocab,
                 const std::string& what) {
  Twin& twin = step.twin;
  const ops::StepView& v = step.p.view;
  const auto rows = static_cast<size_t>(v.padded_rows), samples = static_cast<size_t>(v.samples_per_row);
  ops::SampleParams p{};
  p.logits = ops::tensor_f32(logits, v.padded_logits, vocab);
  if (adjusted != nullptr) p.adjusted = ops::tensor_f32(Step::writable(adjusted), v.padded_rows, vocab);
  p.sampling = step.p.sampling, p.sample_row = step.p.sample_row, p.view = v, p.row_state = step.p.row_state;
  p.history = step.p.history, p.step_count = step.p.step_count, p.error_state = step.p.error_state;
  ops::SampleParams d = p;
  d.adjusted = twin.there(p.adjusted), d.history = step.there(p.history);
  d.logits = twin.there(p.logits), d.sampling = twin.there(p.sampling), d.sample_row = twin.there(p.sample_row);
  d.view = step.there(v), d.row_state = twin.there(p.row_state), d.step_count = twin.there(p.step_count);
  d.error_state = twin.there(p.error_state);
  for (int i = 0; i < ops::SampleParams::kRingSlots; ++i) {
    p.result_headers[i] = twin.take<ops::StepResultHeader>(1);
    p.results[i] = twin.take<ops::RowResult>(rows * samples);
    for (size_t r = 0; r < rows * samples; ++r) twin.compare(&p.results[i][r].logprob, 1, DType::kF32, 2e-5);
    p.logits_ends[i] = twin.take<int32_t>(rows);
    d.result_headers[i] = twin.there(p.result_headers[i]);
    d.results[i] = twin.there(p.results[i]);
    d.logits_ends[i] = twin.there(p.logits_ends[i]);
  }
  // Scratch is not part of the comparison: each side has its own.
  std::vector<std::byte> scratch(cpu_ops().sample_scratch_bytes(v.padded_rows, vocab));
  const auto device_scratch = gpu()->allocate(cuda_ops().sample_scratch_bytes(v.padded_rows, vocab));
  p.scratch = scratch.data(), p.scratch_bytes = scratch.size();
  d.scratch = device_scratch->device(), d.scratch_bytes = device_scratch->bytes();
  twin.run([&](device::Stream& s) { random ? cpu_ops().sample_random(s, p) : cpu_ops().sample_greedy(s, p); },
           [&](device::Stream& s) { random ? cuda_ops().sample_random(s, d) : cuda_ops().sample_greedy(s, d); },
           fmt::format("{} {}", random ? "random" : "greedy", what).c_str());
}

// Greedy and random rows, rows that do not sample, a NaN row, ties.
void run_sample(bool random, int32_t vocab, uint32_t seed) {
  Twin twin(size_t{48} << 20, seed);
  constexpr int32_t kRows = 8, kLive = 7;
  Step step(twin, kRows, kRows, kRows + 1, 4, 16);
  ops::StepView& v = step.p.view;
  *Step::writable(v.num_valid_rows) = kv::NumValidRows(kLive);
  float* logits = twin.floats(static_cast<size_t>(kRows * vocab), 3.0f);
  std::fill(logits + kLive * vocab, logits + kRows * vocab, std::numeric_limits<float>::quiet_NaN());
  logits[2 * vocab + vocab / 2] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 3; ++i) logits[3 * vocab + 11 * i + 5] = 40.0f;  // ties
  for (int32_t b = 0; b < kRows; ++b) {
    Step::writable(v.row_index)[b] = b < kLive ? b + 1 : 0;
    Step::writable(v.query_start)[b] = b;
    Step::writable(v.logits_start)[b] = std::min(b, kLive);
    step.p.sample_row[b] = b != 1 ? 1 : 0;
    const ops::RowSampling kinds[] = {{0.0f, 1, 0, 0, 0, 1},       {1, 1, 0, 0, 0, 1},
                                      {1, 1, 0, 0, 0, 1},          {0.7f, 1, 2, 0, 5, 9},
                                      {0.8f, 0.9f, 0, 0, 2, 77},   {1.2f, 0.95f, 40, 0.02f, 0, seed},
                                      {1.0f, 1.0f, 0, 0.1f, 1, 5}, {1, 1, 0, 0, 0, 1}};
    step.p.sampling[b] = kinds[b];
    step.p.row_state[b + (b < kLive ? 1 : 0)] = {b * 10, 3, 1, static_cast<uint32_t>(b)};
  }
  Step::writable(v.query_start)[kRows] = kRows;
  Step::writable(v.logits_start)[kRows] = kLive;
  const float* adjusted = nullptr;
  if (random && seed % 2 == 1) {  // what is sampled from is not what the probabilities are of
    adjusted = twin.floats(static_cast<size_t>(kRows * vocab), 3.0f);
  }
  run_sampler(step, random, logits, adjusted, vocab, fmt::format("sample of {} seed {}", vocab, seed));
}

// Rows with 0 to 3 drafts, of which the first ones are what their row samples, and others not: every number of accepted
// drafts occurs, with a NaN behind some of them.
void run_verify(bool random, int32_t vocab, uint32_t seed) {
  constexpr int32_t kRows = 32, kLive = 30, kSamples = 4, kTokens = kRows * kSamples;
  Twin twin(static_cast<size_t>(kTokens * vocab) * 4 + (size_t{1} << 20), seed);
  Step step(twin, kRows, kTokens, kRows + 1, 8, 16, kSamples);
  ops::StepView& v = step.p.view;
  v.padded_logits = kTokens;
  *Step::writable(v.num_valid_rows) = kv::NumValidRows(kLive);
  float* logits = twin.floats(static_cast<size_t>(kTokens * vocab), 3.0f);
  Step::writable(v.query_start)[0] = Step::writable(v.logits_start)[0] = 0;
  int32_t t = 0;
  for (int32_t b = 0; b < kRows; ++b) {
    const int32_t n = b < kLive ? 1 + b % kSamples : 0, right = static_cast<int32_t>(twin.rng() % kSamples);
    Step::writable(v.row_index)[b] = b < kLive ? b + 1 : 0;
    step.p.sample_row[b] = n;
    step.p.sampling[b] = {b % 3 == 0 ? 0.0f : 0.6f, 0.9f, 0, 0, 0, seed + static_cast<uint32_t>(b)};
    step.p.row_state[b < kLive ? b + 1 : 0] = {b * 3, 3, 1, static_cast<uint32_t>(b)};
    for (int32_t i = 0; i < n; ++i, ++t) {
      const auto likely = static_cast<int32_t>(twin.rng() % static_cast<uint32_t>(vocab));
      logits[t * vocab + likely] = 80.0f;  // sampled at any temperature
      if (twin.rng() % 16 == 0) logits[t * vocab + 1] = std::numeric_limits<float>::quiet_NaN();
      if (i + 1 < n) Step::writable(v.token_ids)[t + 1] = i < right ? likely : (likely + 1) % vocab;
    }
    Step::writable(v.query_start)[b + 1] = Step::writable(v.logits_start)[b + 1] = t;
  }
  run_sampler(step, random, logits, nullptr, vocab, fmt::format("verify of {} seed {}", vocab, seed));
}

TEST(Sample, EqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (const int32_t vocab : {320, 1001, 49152}) {
      run_sample(false, vocab, seed);
      run_sample(true, vocab, seed);
    }
  }
}

TEST(Sample, DraftsAreAcceptedAsOnTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 4; ++seed) {
    for (const int32_t vocab : {321, 1000}) {
      run_verify(false, vocab, seed);
      run_verify(true, vocab, seed);
    }
  }
}

// Penalties over the history, biases and masks; then the log probabilities. Rows that do not sample or do not ask, a
// prompt whose tokens are scored, ties, a NaN.
void run_full(int32_t vocab, uint32_t seed) {
  Twin twin(size_t{96} << 20, seed);
  constexpr int32_t kRows = 8, kLive = 6, kTokens = 16, kLogits = 16;
  Step step(twin, kRows, kTokens, kRows + 1, 16, 16);
  ops::StepView& v = step.p.view;
  v.padded_logits = kLogits;
  v.samples_per_row = 1;
  *Step::writable(v.num_valid_rows) = kv::NumValidRows(kLive);
  const auto pick = [&](int32_t n) { return static_cast<int32_t>(twin.rng() % static_cast<uint32_t>(n)); };
  for (int32_t i = 0; i < (kRows + 1) * step.p.history.stride; ++i) step.p.history.tokens[i] = pick(40);
  auto* biases = Step::writable(step.p.ring[(5 - 1) % 3].biases);
  *step.p.step_count = 5;
  int32_t t = 0, l = 0, num_biases = 0;
  Step::writable(v.logits_start)[0] = 0;
  for (int32_t b = 0; b < kRows; ++b) {
    const bool live = b < kLive;
    Step::writable(v.row_index)[b] = live ? b + 1 : 0;
    const int32_t len = !live ? 0 : b == 2 ? 5 : 1, computed = 30 + pick(100);
    for (int32_t i = 0; i < len; ++i, ++t) {
      Step::writable(v.token_row)[t] = b;
      Step::writable(v.token_ids)[t] = pick(vocab);
      Step::writable(v.positions)[t] = computed + i;
      if (b == 2 || i == len - 1) Step::writable(v.logits_token)[l++] = t;
    }
    Step::writable(v.logits_start)[b + 1] = l;
    step.p.sample_row[b] = b != 2;
    step.p.next_token[b] = pick(vocab);
    ops::RowSampling s{0.0f, 1, 0, 0, 0, 1};
    s.adjust = {b % 2 ? 1.3f : 1.0f, b % 3 ? 0.3f : 0.0f, b % 4 ? -0.7f : 0.0f, 20, b == 1 ? 500 : 0, num_biases, 2, 3};
    for (int32_t i = 0; i < 5; ++i) biases[num_biases++] = {i * 7 + b, 0.1f * static_cast<float>(i - 2)};
    s.num_top_logprobs = b == 4 ? -1 : 5 * b;
    step.p.sampling[b] = s;
  }
  *Step::writable(v.num_valid_logits) = ops::NumValidLogits(l);
  float* logits = twin.floats(static_cast<size_t>(kLogits * vocab), 3.0f);
  logits[3 * vocab + 7] = logits[3 * vocab + 70] = 30.0f;  // a tie
  logits[8 * vocab + 1] = std::numeric_limits<float>::quiet_NaN();
  ops::AdjustLogitsParams p{};
  p.logits = ops::tensor_f32(logits, kLogits, vocab);
  p.adjusted = ops::tensor_f32(twin.take<float>(static_cast<size_t>(kRows * vocab), -7.0f), kRows, vocab);
  twin.compare(p.adjusted.data, static_cast<size_t>(kRows * vocab), DType::kF32, 0);  // NaN have other bits
  p.view = v, p.sampling = step.p.sampling, p.sample_row = step.p.sample_row, p.history = step.p.history;
  p.step_count = step.p.step_count;
  std::copy_n(step.p.ring, 3, p.ring);
  ops::AdjustLogitsParams d = p;
  d.logits = twin.there(p.logits), d.adjusted = twin.there(p.adjusted), d.view = step.there(v);
  d.sampling = twin.there(p.sampling), d.sample_row = twin.there(p.sample_row), d.history = step.there(p.history);
  d.step_count = twin.there(p.step_count);
  for (auto& slot : d.ring) slot = step.there(slot);
  std::vector<int32_t> counts(static_cast<size_t>(kRows * vocab), -1);
  const auto device_counts = gpu()->allocate(counts.size() * sizeof(int32_t));
  p.counts = counts.data();
  d.counts = reinterpret_cast<int32_t*>(device_counts->device());
  twin.run([&](device::Stream& s) { cpu_ops().adjust_logits(s, p); },
           [&](device::Stream& s) { cuda_ops().adjust_logits(s, d); }, fmt::format("adjust of {}", vocab).c_str());

  ops::LogprobsParams lp{};
  lp.logits = p.logits, lp.sampling = p.sampling, lp.sample_row = p.sample_row, lp.next_token = step.p.next_token;
  lp.view = v, lp.step_count = p.step_count;
  ops::LogprobsParams ld = lp;
  ld.logits = d.logits, ld.sampling = d.sampling, ld.sample_row = d.sample_row, ld.view = d.view;
  ld.next_token = twin.there(lp.next_token), ld.step_count = d.step_count;
  auto* sampled = twin.take<ops::RowResult>(kRows);
  for (int32_t b = 0; b < kRows; ++b) sampled[b].token = pick(vocab);
  auto* results = twin.take<ops::LogprobResult>(kLogits);
  for (int32_t i = 0; i < kLogits; ++i) {
    twin.compare(&results[i].logprob, 1, DType::kF32, 2e-5);
    twin.compare(results[i].top_logprobs, ops::kMaxTopLogprobs, DType::kF32, 2e-5);
  }
  lp.results[(5 - 1) % 3] = sampled, ld.results[(5 - 1) % 3] = twin.there(sampled);
  lp.logprob_results[(5 - 1) % 3] = results, ld.logprob_results[(5 - 1) % 3] = twin.there(results);
  twin.run([&](device::Stream& s) { cpu_ops().logprobs(s, lp); },
           [&](device::Stream& s) { cuda_ops().logprobs(s, ld); }, fmt::format("logprobs of {}", vocab).c_str());
}

TEST(Sample, PenaltiesBiasesAndLogprobsEqualReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (const int32_t vocab : {320, 1001, 49152}) run_full(vocab, seed);
  }
}

}  // namespace
}  // namespace bz::test
