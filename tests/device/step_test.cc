// prepare, attention and the samplers on the GPU against the CPU, over random plans; slot.h on the device.
#include "device/twin.h"

namespace bz::test {
namespace {

using ops::StagedRow;

// The step path's arrays, in a twin's arena. R rows, T tokens, one group.
struct Step {
  Step(Twin& t, int32_t rows, int32_t tokens, int32_t table_rows, int32_t columns, int32_t block_size, bool prefilled)
      : twin(t) {
    const auto r = static_cast<size_t>(rows), n = static_cast<size_t>(tokens), tr = static_cast<size_t>(table_rows);
    p.step_count = twin.take<uint64_t>(1, 4);
    for (auto& slot : p.ring) {
      slot = {
          twin.take<ops::StagedHeader>(1),     twin.take<StagedRow>(r),         twin.take<int32_t>(n),
          twin.take<kv::TableChange>(1024),    twin.take<int32_t>(kMaxHistory), twin.take<ops::LogitBias>(kMaxBiases),
          twin.take<kv::BlockCopy>(kMaxCopies)};
    }
    p.row_state = twin.take<ops::RowState>(tr, {0, 0, 1, 0});
    p.drafts = twin.take<ops::RowDraft>(tr, {2, {5, 6}});
    p.history = {twin.take<int32_t>(tr * static_cast<size_t>(columns * block_size), -7), columns * block_size};
    p.num_table_rows = table_rows;
    p.tables[0] = twin.take<kv::BlockId>(tr * static_cast<size_t>(columns), kv::BlockId(0u));
    p.widths[0] = twin.take<int32_t>(tr);
    p.firsts[0] = twin.take<int32_t>(tr);
    ops::StepView& v = p.view;
    v.padded_rows = rows, v.padded_tokens = tokens, v.padded_logits = rows, v.num_groups = 1;
    v.num_valid_rows = twin.take<kv::NumValidRows>(1, kv::NumValidRows(-7));
    v.num_valid_tokens = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(-7));
    v.num_valid_logits = twin.take<ops::NumValidLogits>(1, ops::NumValidLogits(-7));
    v.token_ids = twin.take<int32_t>(n, -7);
    v.positions = twin.take<int32_t>(n, -7);
    v.token_row = twin.take<int32_t>(n, -7);
    v.row_index = twin.take<int32_t>(r, -7);
    v.query_start = twin.take<int32_t>(r + 1, -7);
    v.seq_len = twin.take<int32_t>(r, -7);
    v.logits_start = twin.take<int32_t>(r + 1, -7);
    v.logits_token = twin.take<int32_t>(std::max(r, n), -7);
    kv::GroupView& g = v.groups[0].view;
    g.table = p.tables[0], g.width = p.widths[0], g.first = p.firsts[0];
    g.num_rows = table_rows, g.max_blocks_per_row = columns, g.block_size = block_size;
    g.max_position = columns * block_size;
    v.groups[0].slots = twin.take<kv::SlotId>(n, kv::SlotId(int64_t{-7}));
    v.groups[0].first_visible = twin.take<int32_t>(r, -7);
    v.states_per_row = 2, v.samples_per_row = 1;
    v.groups[0].states = twin.take<kv::StateId>(2 * r, kv::StateId(7u));
    p.sampling = twin.take<ops::RowSampling>(r);
    p.sample_row = twin.take<int32_t>(r, -7);
    p.next_token = twin.take<int32_t>(r, -7);
    p.error_state = twin.take<ops::StepResultHeader>(1);
    if (prefilled) return;
  }
  ops::StepView there(ops::StepView v) const {
    v.num_valid_rows = twin.there(v.num_valid_rows), v.num_valid_tokens = twin.there(v.num_valid_tokens);
    v.num_valid_logits = twin.there(v.num_valid_logits), v.logits_start = twin.there(v.logits_start);
    v.token_ids = twin.there(v.token_ids), v.positions = twin.there(v.positions);
    v.token_row = twin.there(v.token_row), v.row_index = twin.there(v.row_index);
    v.query_start = twin.there(v.query_start), v.seq_len = twin.there(v.seq_len);
    v.logits_token = twin.there(v.logits_token);
    ops::GroupStep& g = v.groups[0];
    g.view.table = twin.there(g.view.table), g.view.width = twin.there(g.view.width);
    g.view.first = twin.there(g.view.first), g.slots = twin.there(g.slots);
    g.first_visible = twin.there(g.first_visible), g.states = twin.there(g.states);
    return v;
  }
  ops::StagedSlot there(const ops::StagedSlot& s) const {
    return {twin.there(s.header),  twin.there(s.rows),   twin.there(s.tokens), twin.there(s.changes),
            twin.there(s.history), twin.there(s.biases), twin.there(s.copies)};
  }
  ops::TokenHistory there(const ops::TokenHistory& h) const { return {twin.there(h.tokens), h.stride}; }
  ops::PrepareParams there() const {
    ops::PrepareParams d = p;
    for (auto& s : d.ring) s = there(s);
    d.history = there(p.history), d.next_token = twin.there(p.next_token);
    d.step_count = twin.there(p.step_count), d.row_state = twin.there(p.row_state);
    d.drafts = twin.there(p.drafts);
    d.tables[0] = twin.there(p.tables[0]), d.widths[0] = twin.there(p.widths[0]), d.firsts[0] = twin.there(p.firsts[0]);
    d.view = there(p.view), d.sampling = twin.there(p.sampling), d.sample_row = twin.there(p.sample_row);
    d.error_state = twin.there(p.error_state);
    return d;
  }
  template <class T>
  static T* writable(const T* t) {
    return const_cast<T*>(t);
  }

  static constexpr size_t kMaxHistory = 4096, kMaxBiases = 64, kMaxCopies = 16;
  Twin& twin;
  ops::PrepareParams p{};
};

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
    const bool samples = rng() % 2 == 0;
    const auto num_logits = static_cast<int32_t>(rng() % static_cast<uint32_t>(len + 1));
    const int32_t history = rng() % 4 == 0 ? std::min(computed, 60) : 0;
    rows[b] = {row,
               len,
               samples ? std::max(num_logits, 1) : num_logits,
               samples ? 1 : 0,
               computed + len + (rng() % 16 == 0 ? -1 : 3),
               num_history,
               history,
               static_cast<int32_t>(rng() % 999),
               {0.5f, 0.9f, 7, 0.1f, 3, rng()}};
    const kv::RowId id(row);
    const auto change = [&](kv::ChangeKind kind, int32_t column, uint32_t value) {
      changes[num_changes++] = {kind, kv::GroupId(0), id, column, value};
    };
    change(kv::ChangeKind::kWidth, 0, 0);  // released, then claimed again by the same plan
    change(kv::ChangeKind::kRowStart, 0, static_cast<uint32_t>(computed));
    const int32_t width = (computed + len + g.block_size - 1) / g.block_size;
    for (int32_t c = 0; c < width; ++c) {
      if (c >= width - 3) change(kv::ChangeKind::kBlock, c, static_cast<uint32_t>(rng() % 1000));
    }
    if (rng() % 8 != 0) change(kv::ChangeKind::kWidth, 0, static_cast<uint32_t>(width));
    if (rng() % 4 == 0) change(kv::ChangeKind::kFirst, 0, static_cast<uint32_t>(width / 2));
    for (int32_t i = 0; i < len; ++i)
      tokens[num_tokens++] = rng() % 5 == 0 ? ops::kTokenFromRowState : static_cast<int32_t>(rng() % 999);
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
    Step step(twin, rows, tokens, rows + 2, 24, seed % 2 ? 16 : 5, false);
    stage_random(step, seed % 5 == 0 ? 0 : std::max(1, rows - static_cast<int32_t>(seed % 4)), tokens / rows,
                 seed % 7 == 6 ? 9 : 5);  // 9: a gap
    step.p.view.padded_logits = tokens;   // some rows want the logits of several tokens
    const ops::PrepareParams d = step.there();
    twin.run([&](device::Stream& s) { cpu_ops().prepare(s, step.p); },
             [&](device::Stream& s) { cuda_ops().prepare(s, d); }, fmt::format("plan {}", seed).c_str());
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
  Step step(twin, kRows, tokens, kRows + 1, columns, a.block_size, true);
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

// Greedy and random rows, rows that do not sample, a NaN row, ties.
void run_sample(bool random, int32_t vocab, uint32_t seed) {
  Twin twin(size_t{48} << 20, seed);
  constexpr int32_t kRows = 8, kLive = 7;
  Step step(twin, kRows, kRows, kRows + 1, 4, 16, true);
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
  ops::SampleParams p{};
  p.logits = ops::tensor_f32(logits, kRows, vocab);
  p.sampling = step.p.sampling, p.sample_row = step.p.sample_row, p.view = v, p.row_state = step.p.row_state;
  p.history = step.p.history;
  if (random && seed % 2 == 1) {  // what is sampled from is not what the probabilities are of
    p.adjusted = ops::tensor_f32(twin.floats(static_cast<size_t>(kRows * vocab), 3.0f), kRows, vocab);
  }
  p.step_count = step.p.step_count, p.error_state = step.p.error_state;
  ops::SampleParams d = p;
  d.adjusted = twin.there(p.adjusted), d.history = step.there(p.history);
  d.logits = twin.there(p.logits), d.sampling = twin.there(p.sampling), d.sample_row = twin.there(p.sample_row);
  d.view = step.there(v), d.row_state = twin.there(p.row_state), d.step_count = twin.there(p.step_count);
  d.error_state = twin.there(p.error_state);
  for (int i = 0; i < 3; ++i) {
    p.result_headers[i] = twin.take<ops::StepResultHeader>(1);
    p.results[i] = twin.take<ops::RowResult>(kRows);
    for (int b = 0; b < kRows; ++b) twin.compare(&p.results[i][b].logprob, 1, DType::kF32, 2e-5);
    d.result_headers[i] = twin.there(p.result_headers[i]);
    d.results[i] = twin.there(p.results[i]);
    p.logits_ends[i] = twin.take<int32_t>(kRows);
    d.logits_ends[i] = twin.there(p.logits_ends[i]);
  }
  // Scratch is not part of the comparison: each side has its own.
  std::vector<std::byte> scratch(cpu_ops().sample_scratch_bytes(kRows, vocab));
  const auto device_scratch = gpu()->allocate(cuda_ops().sample_scratch_bytes(kRows, vocab));
  p.scratch = scratch.data(), p.scratch_bytes = scratch.size();
  d.scratch = device_scratch->device(), d.scratch_bytes = device_scratch->bytes();
  twin.run([&](device::Stream& s) { random ? cpu_ops().sample_random(s, p) : cpu_ops().sample_greedy(s, p); },
           [&](device::Stream& s) { random ? cuda_ops().sample_random(s, d) : cuda_ops().sample_greedy(s, d); },
           fmt::format("sample {} of {} seed {}", random ? "random" : "greedy", vocab, seed).c_str());
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

// Penalties over the history, biases and masks; then the log probabilities. Rows that do not sample or do not ask, a
// prompt whose tokens are scored, ties, a NaN.
void run_full(int32_t vocab, uint32_t seed) {
  Twin twin(size_t{96} << 20, seed);
  constexpr int32_t kRows = 8, kLive = 6, kTokens = 16, kLogits = 16;
  Step step(twin, kRows, kTokens, kRows + 1, 16, 16, true);
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

TEST(CopyBlocks, EqualsTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (const int64_t stride : {128, 4096 + 128, 256 << 10}) {
    Twin twin(size_t{16} << 20, static_cast<uint32_t>(stride));
    constexpr int32_t kBlocks = 20;
    Step step(twin, 1, 1, 2, 1, 16, true);
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
