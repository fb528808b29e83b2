// Drafts looked up in a row's history, on the GPU against the CPU.
#include "device/step_twin.h"

namespace bz::test {
namespace {

// Texts of few different tokens, so that every length of match occurs; rows too short to match, rows at their end.
TEST(Draft, EqualsTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 40; ++seed) {
    constexpr int32_t kRows = 16, kLive = 14, kColumns = 48, kBlock = 16, kLongest = kColumns * kBlock;
    Twin twin(size_t{4} << 20, seed);
    Step step(twin, kRows, kRows, kRows + 1, kColumns, kBlock, 5);
    ops::StepView& v = step.p.view;
    *Step::writable(v.num_valid_rows) = kv::NumValidRows(kLive);
    const uint32_t alphabet = 2 + seed % 9 * 3;
    for (int32_t i = 0; i < (kRows + 1) * kLongest; ++i) {
      step.p.history.tokens[i] = static_cast<int32_t>(twin.rng() % alphabet);
    }
    Step::writable(v.logits_start)[0] = 0;
    for (int32_t b = 0; b < kRows; ++b) {
      const bool live = b < kLive;
      Step::writable(v.row_index)[b] = live ? kLive - b : 0;
      Step::writable(v.logits_start)[b + 1] = std::min(b + 1, kLive);
      step.p.sample_row[b] = b % 7 == 5 ? 0 : 1;
      const int32_t computed = b < 4 ? b : b == 4 ? kLongest : static_cast<int32_t>(twin.rng() % kLongest);
      if (live) step.p.row_state[kLive - b] = {computed, 1, 1, 0};
    }
    ops::DraftParams p{};
    p.view = v, p.sample_row = step.p.sample_row, p.sampling = step.p.sampling, p.row_state = step.p.row_state;
    p.history = step.p.history, p.drafts = step.p.drafts, p.max_tokens = 4, p.vocab_size = 1000;
    ops::DraftParams d = p;
    d.view = step.there(v), d.sample_row = twin.there(p.sample_row), d.sampling = twin.there(p.sampling);
    d.row_state = twin.there(p.row_state), d.history = step.there(p.history), d.drafts = twin.there(p.drafts);
    twin.run([&](device::Stream& s) { cpu_ops().draft(s, p); }, [&](device::Stream& s) { cuda_ops().draft(s, d); },
             fmt::format("draft {}", seed).c_str());
  }
}

}  // namespace
}  // namespace bz::test
