// prepare and block copies on the GPU against the CPU, over random plans.
#include "device/step_twin.h"

namespace bz::test {
namespace {

using ops::StagedRow;

// A staged slot of `live` rows out of R, chunks of up to max_len tokens, table changes in conflicting order, and rows
// that must be nulled: empty ones, ones past what was reserved.
void stage_random(Step& s, int32_t live, int32_t max_len, uint64_t sequence) {
  auto& rng = s.twin.rng;
  const ops::StagedSlot& slot = s.p.ring[(5 - 1) % 3];
  auto* rows = Step::writable(slot.rows);
  auto* tokens = Step::writable(slot.tokens);
  auto* changes = Step::writable(slot.changes);
  const kv::GroupView& g = s.p.view.groups[0].view;
  int32_t num_tokens = 0, num_changes = 0, num_rows = 0, num_history = 0;
  for (size_t i = 0; i < Step::kMaxHistory; ++i) Step::writable(slot.history)[i] = static_cast<int32_t>(rng() % 999);
  for (int32_t b = 0; b < live; ++b) {
    const int32_t len = std::min<int32_t>(1 + static_cast<int32_t>(rng() % static_cast<uint32_t>(max_len)),
                                          s.p.view.padded_tokens - num_tokens);
    if (len == 0) break;
    const int32_t row = b + 1;
    const int32_t computed = static_cast<int32_t>(rng() % static_cast<uint32_t>(g.max_position - len));
    const bool verifies = s.p.view.samples_per_row > 1 && rng() % 2 == 0;  // its last tokens are drafts, if it has any
    const bool samples = verifies || rng() % 2 == 0;
    const auto num_logits = static_cast<int32_t>(rng() % static_cast<uint32_t>(len + 1));
    const int32_t history = rng() % 4 == 0 ? std::min(computed, 60) : 0;
    rows[b] = {row,
               len,
               verifies  ? len
               : samples ? std::max(num_logits, 1)
                         : num_logits,
               verifies  ? len
               : samples ? 1
                         : 0,
               computed + len + (rng() % 16 == 0 ? -1 : 3),
               num_history,
               history,
               static_cast<int32_t>(rng() % 999),
               {0.5f, 0.9f, 7, 0.1f, 3, rng()}};
    const kv::RowId id(row);
    const auto change = [&](kv::ChangeKind kind, int32_t column, uint32_t value) {
      changes[num_changes++] = {kind, kv::GroupId(0), id, column, value};
    };
    if (verifies) {
      s.p.row_state[row] = {computed, static_cast<int32_t>(rng() % 999), 1, 5};
      s.p.drafts[row].count = static_cast<int32_t>(rng() % static_cast<uint32_t>(s.p.view.samples_per_row));
    } else {
      change(kv::ChangeKind::kWidth, 0, 0);  // released, then claimed again by the same plan
      change(kv::ChangeKind::kRowStart, 0, static_cast<uint32_t>(computed));
    }
    const int32_t width = (computed + len + g.block_size - 1) / g.block_size;
    for (int32_t c = 0; c < width; ++c) {
      if (c >= width - 3) change(kv::ChangeKind::kBlock, c, static_cast<uint32_t>(rng() % 1000));
    }
    if (rng() % 8 != 0) change(kv::ChangeKind::kWidth, 0, static_cast<uint32_t>(width));
    if (rng() % 4 == 0) change(kv::ChangeKind::kFirst, 0, static_cast<uint32_t>(width / 2));
    for (int32_t i = 0; i < len; ++i) {
      const bool from_state = verifies ? i == 0 : rng() % 5 == 0;
      tokens[num_tokens++] = from_state ? ops::kTokenFromRowState
                             : verifies ? ops::kTokenFromDraft
                                        : static_cast<int32_t>(rng() % 999);
    }
    num_history += history;
    ++num_rows;
  }
  *Step::writable(slot.header) = {sequence, num_rows, num_tokens, num_changes, 0};
}

TEST(Prepare, EqualsTheCpuOverRandomPlans) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Twin twin(4 << 20, seed);
    const int32_t rows = 1 << (seed % 8), tokens = rows * (1 + static_cast<int32_t>(seed % 3) * 4);
    Step step(twin, rows, tokens, rows + 2, 24, seed % 2 ? 16 : 5);
    stage_random(step, seed % 5 == 0 ? 0 : std::max(1, rows - static_cast<int32_t>(seed % 4)), tokens / rows,
                 seed % 7 == 6 ? 9 : 5);  // 9: a gap
    step.p.view.padded_logits = tokens;   // some rows want the logits of several tokens
    const ops::PrepareParams d = step.there();
    twin.run([&](device::Stream& s) { cpu_ops().prepare(s, step.p); },
             [&](device::Stream& s) { cuda_ops().prepare(s, d); }, fmt::format("plan {}", seed).c_str());
  }
}

// Attention's lists: rows with few tokens and with many, that see little and much, in a window and without one.
TEST(Prepare, ListsOfEveryClassEqualTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (uint32_t seed = 0; seed < 8; ++seed) {
    Twin twin(16 << 20, seed);
    constexpr int32_t kRows = 64, kLongest = 40, kTokens = kRows * kLongest;
    Step step(twin, kRows, kTokens, kRows + 2, 64, 16);
    step.p.view.groups[0].view.window = seed % 2 == 0 ? 0 : 500;
    stage_random(step, kRows, kLongest, 5);
    step.p.view.padded_logits = kTokens;
    const ops::PrepareParams d = step.there();
    ops::AttentionCounts counts{};
    const auto on_cpu = [&](device::Stream& s) {
      cpu_ops().prepare(s, step.p);
      s.synchronize();
      counts = *step.p.view.groups[0].attention.counts;
    };
    twin.run(on_cpu, [&](device::Stream& s) { cuda_ops().prepare(s, d); }, fmt::format("lists {}", seed).c_str());
    for (const int32_t count : counts.of_class) EXPECT_GT(count, 0) << seed;
  }
}

// Rows that verify drafts, as many as there are or fewer, beside rows that do not.
TEST(Prepare, WithDraftsEqualsTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  constexpr int32_t kSamples = 5;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Twin twin(4 << 20, seed);
    const int32_t rows = 1 << (seed % 8), tokens = rows * kSamples;
    Step step(twin, rows, tokens, rows + 2, 24, 16, kSamples);
    for (int32_t i = 0; i < step.p.num_table_rows; ++i) {
      for (int32_t& token : step.p.drafts[i].tokens) token = static_cast<int32_t>(twin.rng() % 999);
    }
    stage_random(step, std::max(1, rows - static_cast<int32_t>(seed % 4)), kSamples, 5);
    step.p.view.padded_logits = tokens;
    const ops::PrepareParams d = step.there();
    twin.run([&](device::Stream& s) { cpu_ops().prepare(s, step.p); },
             [&](device::Stream& s) { cuda_ops().prepare(s, d); }, fmt::format("plan with drafts {}", seed).c_str());
  }
}

TEST(CopyBlocks, EqualsTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (const int64_t stride : {128, 4096 + 128, 256 << 10}) {
    Twin twin(size_t{16} << 20, static_cast<uint32_t>(stride));
    constexpr int32_t kBlocks = 20;
    Step step(twin, 1, 1, 2, 1, 16);
    std::byte* slabs = twin.take<std::byte>(static_cast<size_t>(stride) * kBlocks);
    for (int64_t i = 0; i < stride * kBlocks; ++i) slabs[i] = static_cast<std::byte>(twin.rng());
    const auto slot = static_cast<size_t>(*step.p.step_count % 3);
    *Step::writable(step.p.ring[slot].header) = {*step.p.step_count + 1, 0, 0, 0, 4};
    auto* copies = Step::writable(step.p.ring[slot].copies);
    const uint32_t pairs[][2] = {{2, 11}, {2, 12}, {0, 13}, {7, 14}};
    for (const auto& [from, to] : pairs) *copies++ = {kv::BlockId(from), kv::BlockId(to)};
    ops::CopyBlocksParams p{};
    std::copy_n(step.p.ring, 3, p.ring);
    p.step_count = step.p.step_count, p.base = slabs, p.block_stride = stride, p.num_blocks = kBlocks;
    ops::CopyBlocksParams d = p;
    for (auto& s : d.ring) s = step.there(s);
    d.step_count = twin.there(p.step_count), d.base = twin.there(slabs);
    twin.run([&](device::Stream& s) { cpu_ops().copy_blocks(s, p); },
             [&](device::Stream& s) { cuda_ops().copy_blocks(s, d); }, fmt::format("copies of {}", stride).c_str());
  }
}

}  // namespace
}  // namespace bz::test
