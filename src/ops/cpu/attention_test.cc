// attention and rope_store over a paged cache whose unowned bytes are all NaN: against a float64 statement, and PAD-5,
// PAD-7, PAD-9a, PAD-9b.
#include <algorithm>

#include "ops/cpu/kv_element.h"
#include "ops/cpu/ops_test_util.h"

namespace bz::ops::cpu::test {
namespace {

struct Shape {
  int32_t heads, kv_heads, hd, block_size;
  DType dtype = DType::kF16;
};

// A cache of `lengths.size()` requests (table rows 1..), block ids shuffled, slabs wider than their pages.
class Cache {
 public:
  Cache(const Shape& s, const std::vector<int32_t>& lengths, uint32_t seed) : shape_(s), rng_(seed) {
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    columns_ = longest / s.block_size + 2;
    const auto rows = lengths.size() + 1;
    table_.assign(rows * static_cast<size_t>(columns_), kv::BlockId(0u));
    width_.assign(rows, 0);
    first_.assign(rows, 0);
    std::vector<uint32_t> ids(rows * static_cast<size_t>(columns_));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i) + 1;
    std::shuffle(ids.begin(), ids.end(), rng_);
    size_t next = 0;
    for (size_t r = 1; r < rows; ++r) {
      width_[r] = (lengths[r - 1] + s.block_size - 1) / s.block_size;
      for (int c = 0; c < width_[r]; ++c)
        table_[r * static_cast<size_t>(columns_) + static_cast<size_t>(c)] = kv::BlockId(ids[next++]);
    }
    const int64_t entry = int64_t{s.kv_heads} * s.hd * kv_element_bytes(s.dtype);
    const int64_t page = (entry * s.block_size + 127) / 128 * 128;
    layer.k = {2 * page + 384, 128, entry, s.block_size};
    layer.v = {2 * page + 384, 128 + page, entry, s.block_size};
    layer.num_kv_heads = s.kv_heads;
    layer.head_dim = s.hd;
    layer.dtype = s.dtype;
    slabs_ = Guarded<std::byte>((ids.size() + 1) * static_cast<size_t>(layer.k.block_stride), std::byte{0xFF});
    layer.base = slabs_.data();
  }

  kv::GroupView view() const {
    return {table_.data(),
            width_.data(),
            first_.data(),
            static_cast<int32_t>(width_.size()),
            columns_,
            shape_.block_size,
            columns_ * shape_.block_size};
  }
  // Fills positions [begin, end) of table row `row` with random entries.
  void fill(int row, int32_t begin, int32_t end) {
    const int32_t n = shape_.kv_heads * shape_.hd;
    for (int32_t pos = begin; pos < end; ++pos) {
      const kv::SlotId slot = kv::slot_of(view(), kv::RowId(row), pos);
      ASSERT_NE(slot.value(), -1);
      const uint32_t seed = static_cast<uint32_t>(row * 100003 + pos);
      store_kv(shape_.dtype, layer.base + kv::entry_offset(layer.k, slot).value(),
               random_floats(static_cast<size_t>(n), seed).data(), n);
      store_kv(shape_.dtype, layer.base + kv::entry_offset(layer.v, slot).value(),
               random_floats(static_cast<size_t>(n), seed + 7777777).data(), n);
    }
  }
  void drop_block(int row, int column) { table_[static_cast<size_t>(row * columns_ + column)] = kv::kNullBlock; }
  void poison(int row, int32_t pos) {
    const kv::SlotId slot = kv::slot_of(view(), kv::RowId(row), pos);
    std::memset(layer.base + kv::entry_offset(layer.k, slot).value(), 0xFF, static_cast<size_t>(layer.k.entry_bytes));
    std::memset(layer.base + kv::entry_offset(layer.v, slot).value(), 0xFF, static_cast<size_t>(layer.v.entry_bytes));
  }
  std::vector<float> head(bool value, int row, int32_t pos, int kv_head) const {
    const kv::PageView& page = value ? layer.v : layer.k;
    const kv::SlotId slot = kv::slot_of(view(), kv::RowId(row), pos);
    std::vector<float> out(static_cast<size_t>(shape_.hd));
    load_kv(shape_.dtype,
            layer.base + kv::entry_offset(page, slot).value() + kv_head * shape_.hd * kv_element_bytes(shape_.dtype),
            out.data(), shape_.hd);
    return out;
  }
  std::vector<std::byte> bytes() const { return {slabs_.data(), slabs_.data() + slabs_.size()}; }
  const Shape& shape() const { return shape_; }

  KvLayer layer;

 private:
  Shape shape_;
  std::mt19937 rng_;
  int32_t columns_;
  std::vector<kv::BlockId> table_;
  std::vector<int32_t> width_, first_;
  Guarded<std::byte> slabs_;
};

// Some tokens [from, to) of the request in table row `row`; its cache then holds `to` tokens.
struct Span {
  int32_t row, from, to;
  int32_t first_visible = 0;
};

// A step as prepare would have left it, padding included.
struct Step {
  Step(const Cache& cache, const std::vector<Span>& spans, int32_t pad_rows, int32_t pad_tokens)
      : rows(static_cast<int32_t>(spans.size())), group_view(cache.view()) {
    query_start.push_back(0);
    for (const Span& s : spans) {
      row_index.push_back(s.row);
      seq_len.push_back(s.to);
      first_visible.push_back(s.first_visible);
      for (int32_t p = s.from; p < s.to; ++p) {
        token_row.push_back(static_cast<int32_t>(row_index.size()) - 1);
        positions.push_back(p);
        slots.push_back(kv::slot_of(group_view, kv::RowId(s.row), p));
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
    }
    valid_rows = kv::NumValidRows(rows);
    valid_tokens = kv::NumValidTokens(static_cast<int32_t>(positions.size()));
    for (int i = 0; i < pad_rows; ++i) {
      row_index.push_back(0);
      seq_len.push_back(0);
      first_visible.push_back(0);
      query_start.push_back(query_start.back());
    }
    token_row.resize(token_row.size() + static_cast<size_t>(pad_tokens), -1);
    positions.resize(positions.size() + static_cast<size_t>(pad_tokens), 0);
    slots.resize(slots.size() + static_cast<size_t>(pad_tokens), kv::kPadSlot);
  }
  StepView view() {
    StepView v{};
    v.padded_rows = static_cast<int32_t>(row_index.size());
    v.padded_tokens = static_cast<int32_t>(positions.size());
    v.num_groups = 1;
    v.num_valid_rows = &valid_rows;
    v.num_valid_tokens = &valid_tokens;
    v.positions = positions.data();
    v.token_row = token_row.data();
    v.row_index = row_index.data();
    v.query_start = query_start.data();
    v.seq_len = seq_len.data();
    v.groups[0] = {group_view, slots.data(), first_visible.data()};
    return v;
  }
  int32_t rows;
  kv::GroupView group_view;
  kv::NumValidRows valid_rows{0};
  kv::NumValidTokens valid_tokens{0};
  std::vector<int32_t> row_index, seq_len, first_visible, query_start, token_row, positions;
  std::vector<kv::SlotId> slots;
};

// The queries of a token depend on its request and position alone.
std::vector<float> query_of(const Shape& s, int32_t row, int32_t pos) {
  return random_floats(static_cast<size_t>(s.heads * s.hd), static_cast<uint32_t>(row * 7919 + pos) + 99u, 2.0f);
}

std::vector<float> run_attention(const OpTable& ops, Cache& cache, const std::vector<Span>& spans, int threads,
                                 int pad_rows = 0, int pad_tokens = 0, bool scratch = true) {
  const Shape& s = cache.shape();
  Step step(cache, spans, pad_rows, pad_tokens);
  const auto width = static_cast<size_t>(s.heads * s.hd);
  Floats q(step.positions.size() * width, kNan), out(q.size(), kNan);
  for (size_t t = 0; t < static_cast<size_t>(step.valid_tokens.value()); ++t) {
    const auto v = query_of(s, step.row_index[static_cast<size_t>(step.token_row[t])], step.positions[t]);
    std::memcpy(q.data() + t * width, v.data(), width * sizeof(float));
  }
  AttentionParams p{};
  p.view = step.view();
  p.q = tensor_f32(q.data(), p.view.padded_tokens, s.heads * s.hd);
  p.out = tensor_f32(out.data(), p.view.padded_tokens, s.heads * s.hd);
  p.num_heads = s.heads;
  p.scale = 1.0f / std::sqrt(static_cast<float>(s.hd));
  p.layer = cache.layer;
  Floats space(scratch ? ops.attention_scratch_bytes(s.heads, s.hd, cache.view().max_position) / 4 : 0, kNan);
  p.scratch = scratch ? space.data() : nullptr;
  p.scratch_bytes = space.size() * 4;
  run_op(ops.attention, p, threads);
  q.check("q");
  out.check("out");
  space.check("scratch");
  const size_t live = static_cast<size_t>(step.valid_tokens.value()) * width;
  EXPECT_TRUE(all_zero(out.data() + live, out.size() - live)) << "padding rows are zeros";
  return {out.data(), out.data() + live};
}

// float64, straight from the definition.
std::vector<float> by_definition(const Cache& cache, const std::vector<Span>& spans) {
  const Shape& s = cache.shape();
  std::vector<float> out;
  for (const Span& span : spans) {
    for (int32_t pos = span.from; pos < span.to; ++pos) {
      const auto q = query_of(s, span.row, pos);
      for (int h = 0; h < s.heads; ++h) {
        std::vector<double> score, acc(static_cast<size_t>(s.hd));
        std::vector<std::vector<float>> values;
        for (int32_t p = span.first_visible; p <= pos; ++p) {
          if (kv::slot_of(cache.view(), kv::RowId(span.row), p) == kv::kPadSlot) continue;
          const auto k = cache.head(false, span.row, p, h / (s.heads / s.kv_heads));
          double dot = 0;
          for (int i = 0; i < s.hd; ++i)
            dot += static_cast<double>(q[static_cast<size_t>(h * s.hd + i)]) * k[static_cast<size_t>(i)];
          score.push_back(dot / std::sqrt(s.hd));
          values.push_back(cache.head(true, span.row, p, h / (s.heads / s.kv_heads)));
        }
        double max = -INFINITY, sum = 0;
        for (const double x : score) max = std::max(max, x);
        for (size_t j = 0; j < score.size(); ++j) {
          const double w = std::exp(score[j] - max);
          sum += w;
          for (int i = 0; i < s.hd; ++i) acc[static_cast<size_t>(i)] += w * values[j][static_cast<size_t>(i)];
        }
        for (const double a : acc) out.push_back(static_cast<float>(sum == 0 ? 0 : a / sum));
      }
    }
  }
  return out;
}

const std::vector<Shape> kShapes = {
    {9, 3, 64, 16},
    {4, 4, 32, 16},
    {4, 2, 16, 32},
    {8, 1, 128, 16},
    {5, 5, 80, 48},
    {2, 1, 64, 16, DType::kF32},
    {6, 2, 40, 8, DType::kBF16},
    {16, 1, 256, 16},
    {4, 2, 12, 16},
    {34, 34, 16, 16},  // more KV heads than a tile takes
    {32, 2, 256, 16},
};

TEST(Attention, IsItsDefinition) {
  for (const OpTable* ops : all_tables()) {
    for (const Shape& s : kShapes) {
      Cache cache(s, {300, 1, 70}, 5);
      cache.fill(1, 0, 300);
      cache.fill(2, 0, 1);
      cache.fill(3, 0, 70);
      const std::vector<Span> spans = {{1, 299, 300}, {2, 0, 1}, {3, 37, 70, 0}};
      const auto out = run_attention(*ops, cache, spans, 2, 2, 5), want = by_definition(cache, spans);
      ASSERT_EQ(out.size(), want.size());
      EXPECT_LT(relative_rms(out.data(), want.data(), out.size()), 2e-6) << ops->isa << " hd " << s.hd;
    }
  }
}

TEST(Attention, SeesNothingBeforeFirstVisibleOrInNullBlocks) {
  for (const OpTable* ops : all_tables()) {
    Cache cache(kShapes[0], {600}, 6);
    cache.fill(1, 40, 600);  // positions before 40 stay NaN
    cache.poison(1, 300);
    cache.drop_block(1, 300 / 16);
    const std::vector<Span> spans = {{1, 560, 600, 40}};
    const auto out = run_attention(*ops, cache, spans, 1), want = by_definition(cache, spans);
    EXPECT_LT(relative_rms(out.data(), want.data(), out.size()), 2e-6) << ops->isa;
    for (const int column : {35, 36, 37}) cache.drop_block(1, column);
    const auto none = run_attention(*ops, cache, {{1, 560, 592, 560}}, 1);
    EXPECT_TRUE(all_zero(none.data(), none.size())) << ops->isa << ": a query that sees nothing is zeros, not 0/0";
  }
}

// PAD-9b: whole, in chunks, token by token, with batch mates, padding, threads, with and without shared splits.
TEST(Attention, BitsOfATokenDependOnItsPositionsAlone) {
  for (const OpTable* ops : all_tables()) {
    for (const Shape& s : {kShapes[0], kShapes[3], kShapes[6], kShapes[9]}) {
      const int32_t length = 700;
      Cache cache(s, {length, 530, 45}, 7);
      cache.fill(1, 0, length);
      cache.fill(2, 0, 530);
      cache.fill(3, 0, 45);
      const auto width = static_cast<size_t>(s.heads * s.hd);
      const auto whole = run_attention(*ops, cache, {{1, 0, length}}, 2);
      for (const int32_t chunk : {1, 16, 37, 512}) {
        for (int32_t from = chunk == 1 ? length - 8 : chunk == 16 ? 500 : 0; from < length; from += chunk) {
          const int32_t to = std::min(from + chunk, length);
          const auto part = run_attention(*ops, cache, {{1, from, to}}, 1 + from % 3, 1, 3, from % 2 == 0);
          ASSERT_TRUE(same_bits(part.data(), whole.data() + static_cast<size_t>(from) * width, part.size()))
              << ops->isa << " chunk " << chunk << " from " << from;
        }
      }
      const auto batch = run_attention(*ops, cache, {{3, 44, 45}, {2, 500, 530}, {1, 690, 700}, {3, 10, 12}}, 3, 4, 20);
      ASSERT_TRUE(same_bits(batch.data() + 31 * width, whole.data() + 690 * width, 10 * width)) << ops->isa;
    }
  }
}

TEST(Attention, SameBitsOnEveryInstructionSet) {
  const auto tables = fast_tables();
  if (tables.size() < 2) GTEST_SKIP() << "one fast instruction set here";
  for (const Shape& s : kShapes) {
    Cache cache(s, {520}, 8);
    cache.fill(1, 0, 520);
    for (const Span& span : {Span{1, 519, 520}, Span{1, 470, 520}}) {
      const auto a = run_attention(*tables[0], cache, {span}, 2), b = run_attention(*tables[1], cache, {span}, 1);
      EXPECT_TRUE(same_bits(a.data(), b.data(), a.size())) << "hd " << s.hd;
    }
  }
}

TEST(Attention, EmptyStepIsZeros) {
  for (const OpTable* ops : all_tables()) {
    Cache cache(kShapes[0], {16}, 9);
    EXPECT_TRUE(run_attention(*ops, cache, {}, 2, 8, 8).empty());
  }
}

// Only the slots of live tokens are written, k is rotated, v is not, padding rows of q and k become zeros.
TEST(RopeStore, WritesItsSlotsAndNoOthers) {
  for (const OpTable* ops : all_tables()) {
    for (const Shape& s : kShapes) {
      for (const RopeStyle style : {RopeStyle::kAdjacentPairs, RopeStyle::kHalfSplit}) {
        Cache cache(s, {50}, 10);
        Step step(cache, {{1, 40, 50}}, 1, 3);
        const auto tokens = static_cast<int32_t>(step.positions.size());
        const int32_t qw = s.heads * s.hd, kw = s.kv_heads * s.hd;
        std::vector<double> inv_freq;
        for (int i = 0; i < s.hd / 2; ++i) inv_freq.push_back(std::pow(10000.0, -2.0 * i / s.hd));
        Floats cos_sin(static_cast<size_t>(tokens * s.hd), kNan), q(static_cast<size_t>(tokens * qw)),
            k(static_cast<size_t>(tokens * kw)), v(k.size());
        copy_in(q, random_floats(q.size(), 1));
        copy_in(k, random_floats(k.size(), 2));
        copy_in(v, random_floats(v.size(), 3));
        const std::vector<float> q0(q.data(), q.data() + q.size()), k0(k.data(), k.data() + k.size());
        RopeTableParams table{step.positions.data(), inv_freq.data(), tensor_f32(cos_sin.data(), tokens, s.hd),
                              ValidCount(&step.valid_tokens)};
        run_op(ops->rope_table, table, 2);
        RopeStoreParams p{};
        p.q = tensor_f32(q.data(), tokens, qw);
        p.k = tensor_f32(k.data(), tokens, kw);
        p.v = tensor_f32(v.data(), tokens, kw);
        p.cos_sin = table.cos_sin;
        p.style = style;
        p.slots = step.slots.data();
        p.layer = cache.layer;
        p.num_valid = ValidCount(&step.valid_tokens);
        const auto before = cache.bytes();
        run_op(ops->rope_store, p, 2);
        for (const Floats* f : {&cos_sin, &q, &k, &v}) f->check("tensor");
        EXPECT_TRUE(all_zero(q.data() + 10 * qw, static_cast<size_t>(3 * qw)));
        EXPECT_TRUE(all_zero(k.data() + 10 * kw, static_cast<size_t>(3 * kw)));
        const int32_t half = s.hd / 2;
        for (int t = 0; t < 10; ++t) {
          for (int i = 0; i < half; ++i) {
            const double angle = (40 + t) * inv_freq[static_cast<size_t>(i)];
            const int x = style == RopeStyle::kAdjacentPairs ? 2 * i : i,
                      y = style == RopeStyle::kAdjacentPairs ? 2 * i + 1 : half + i;
            const auto at = static_cast<size_t>(t * qw + s.hd);  // head 1
            const size_t h = s.heads > 1 ? at : static_cast<size_t>(t * qw);
            EXPECT_NEAR(
                q[h + static_cast<size_t>(x)],
                q0[h + static_cast<size_t>(x)] * std::cos(angle) - q0[h + static_cast<size_t>(y)] * std::sin(angle),
                1e-5)
                << ops->isa;
            EXPECT_NEAR(
                q[h + static_cast<size_t>(y)],
                q0[h + static_cast<size_t>(x)] * std::sin(angle) + q0[h + static_cast<size_t>(y)] * std::cos(angle),
                1e-5)
                << ops->isa;
          }
          for (int h = 0; h < s.kv_heads; ++h) {
            const auto stored_k = cache.head(false, 1, 40 + t, h), stored_v = cache.head(true, 1, 40 + t, h);
            for (int i = 0; i < s.hd; ++i) {
              const auto at = static_cast<size_t>(t * kw + h * s.hd + i);
              EXPECT_NEAR(stored_k[static_cast<size_t>(i)], k[at], std::fabs(k[at]) * 4e-3 + 1e-6);
              EXPECT_NEAR(stored_v[static_cast<size_t>(i)], v[at], std::fabs(v[at]) * 4e-3 + 1e-6);
            }
          }
        }
        const auto after = cache.bytes();
        size_t changed = 0;
        for (size_t i = 0; i < after.size(); ++i) changed += after[i] != before[i];
        EXPECT_LE(changed, 10u * 2u * static_cast<size_t>(cache.layer.k.entry_bytes));
      }
    }
  }
}

}  // namespace
}  // namespace bz::ops::cpu::test
