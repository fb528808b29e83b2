// prepare, attention and block copies on the GPU against the CPU, over random plans.
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

struct AttentionShape {
  int32_t heads, kv_heads, hd, block_size;
  DType dtype;
};

// Rows of very different lengths, a dropped block, shuffled ids; every unowned byte is NaN, and block 0 too.
void run_attention(const AttentionShape& a, int32_t max_len, bool prefill, bool batch_invariant, uint32_t seed) {
  constexpr int32_t kRows = 8, kLive = 6;
  const int32_t tokens = prefill ? 40 : kRows;
  const int32_t columns = (max_len + a.block_size - 1) / a.block_size + 1;
  const int64_t element = a.dtype == DType::kF32 ? 4 : 2;
  const int64_t entry = a.kv_heads * a.hd * element, page = (entry * a.block_size + 127) / 128 * 128;
  Twin twin(static_cast<size_t>((kLive * columns + 1) * (2 * page + 128)) + (size_t{4} << 20), seed);
  Step step(twin, kRows, tokens, kRows + 1, columns, a.block_size);
  ops::StepView& v = step.p.view;
  ops::KvLayer layer;
  layer.k = {2 * page + 128, 0, entry, a.block_size};
  layer.v = {2 * page + 128, page, entry, a.block_size};
  layer.num_kv_heads = a.kv_heads, layer.head_dim = a.hd, layer.dtype = a.dtype;
  std::vector<uint32_t> ids(static_cast<size_t>(kLive * columns));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i) + 1;
  std::shuffle(ids.begin(), ids.end(), twin.rng);
  layer.base = twin.take<std::byte>((ids.size() + 1) * static_cast<size_t>(layer.k.block_stride), std::byte{0xFF});

  *Step::writable(v.num_valid_rows) = kv::NumValidRows(kLive);
  auto* query_start = Step::writable(v.query_start);
  std::fill_n(query_start, kRows + 1, 0);
  std::fill_n(Step::writable(v.token_row), tokens, -1);
  std::fill_n(Step::writable(v.positions), tokens, 0);
  std::fill_n(Step::writable(v.seq_len), kRows, 0);
  std::fill_n(Step::writable(v.row_index), kRows, 0);
  std::fill_n(v.groups[0].first_visible, kRows, 0);
  std::normal_distribution<float> normal;
  int32_t t = 0;
  for (int32_t b = 0; b < kLive; ++b) {
    const int32_t row = b + 1;
    const int32_t query = prefill ? std::min(1 + 3 * b, tokens - t) : 1;
    const int32_t len =
        std::max(b == 0 ? query : static_cast<int32_t>(twin.rng() % static_cast<uint32_t>(max_len)) + 1, query);
    const int32_t width = (len + a.block_size - 1) / a.block_size;
    step.p.widths[0][row] = width;
    for (int32_t c = 0; c < width; ++c) {
      const bool dropped = b == 3 && c == width / 2 && width > 2;
      step.p.tables[0][row * columns + c] = kv::BlockId(dropped ? 0u : ids[static_cast<size_t>(b * columns + c)]);
    }
    v.groups[0].first_visible[b] = b == 2 ? len / 3 : 0;
    for (int32_t pos = v.groups[0].first_visible[b]; pos < len; ++pos) {
      const kv::SlotId slot = kv::slot_of(v.groups[0].view, kv::RowId(row), pos);
      if (slot == kv::kPadSlot) continue;
      for (const kv::PageView& page_view : {layer.k, layer.v}) {
        std::byte* e = layer.base + kv::entry_offset(page_view, slot).value();
        for (int32_t i = 0; i < a.kv_heads * a.hd; ++i) {
          const float f = normal(twin.rng);
          const uint16_t h = a.dtype == DType::kF16 ? f32_to_f16(f) : f32_to_bf16(f);
          std::memcpy(e + i * element, a.dtype == DType::kF32 ? static_cast<const void*>(&f) : &h,
                      static_cast<size_t>(element));
        }
      }
    }
    Step::writable(v.row_index)[b] = row;
    Step::writable(v.seq_len)[b] = len;
    for (int32_t i = 0; i < query; ++i, ++t) {
      Step::writable(v.token_row)[t] = b;
      Step::writable(v.positions)[t] = len - query + i;
    }
    query_start[b + 1] = t;
  }
  const int32_t cols = a.heads * a.hd;
  float* q = twin.floats(static_cast<size_t>(tokens * cols), 0.7f);
  std::fill(q + t * cols, q + tokens * cols, std::numeric_limits<float>::quiet_NaN());
  ops::AttentionParams p{};
  p.q = ops::tensor_f32(q, tokens, cols);
  p.out = ops::tensor_f32(twin.output(static_cast<size_t>(tokens * cols), 1e-5), tokens, cols);
  p.num_heads = a.heads, p.scale = 0.125f, p.layer = layer, p.view = v;
  ops::AttentionParams d = p;
  d.q = twin.there(p.q), d.out = twin.there(p.out), d.layer = twin.there(layer), d.view = step.there(v);
  const std::string what = fmt::format("attention {}/{}/{} block {} {} to {}{}", a.heads, a.kv_heads, a.hd,
                                       a.block_size, dtype_info(a.dtype).name, max_len, prefill ? " prefill" : "");
  twin.run([&](device::Stream& s) { cpu_ops().attention(s, p); },
           [&](device::Stream& s) { cuda_ops(batch_invariant).attention(s, d); }, what.c_str());
}

void run_attention_up_to(std::initializer_list<int32_t> lengths) {
  uint32_t seed = 1;
  for (const AttentionShape& a :
       {AttentionShape{9, 3, 64, 128, DType::kBF16}, AttentionShape{9, 3, 64, 16, DType::kF16},
        AttentionShape{4, 2, 16, 16, DType::kF32}, AttentionShape{8, 2, 128, 16, DType::kBF16},
        AttentionShape{4, 4, 32, 4, DType::kBF16}, AttentionShape{14, 2, 64, 20, DType::kBF16},
        AttentionShape{32, 2, 128, 16, DType::kF16}, AttentionShape{16, 2, 128, 32, DType::kF32}}) {
    for (const int32_t max_len : lengths) {
      for (const bool prefill : {false, true}) run_attention(a, max_len, prefill, seed % 2 == 0, seed), ++seed;
    }
  }
}

TEST(Attention, EqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  run_attention_up_to({7, 90, 700});
}

// What compute-sanitizer can finish: a run, some runs, two ctas.
TEST(Attention, SmallShapes) {
  BZ_SKIP_WITHOUT_GPU();
  run_attention_up_to({12, 80});
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
