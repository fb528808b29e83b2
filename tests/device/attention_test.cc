// Attention on the GPU against the CPU: decode steps, prompts, and both in one step.
#include "ops/cuda/attention.h"
#include "device/step_twin.h"

namespace bz::test {
namespace {

struct AttentionShape {
  int32_t heads, kv_heads, hd, block_size;
  DType dtype;
};

// Tokens of each row, negative: of a row that prepare nulled; and of the padded step.
struct AttentionBatch {
  const char* name;
  int32_t queries[6];
  int32_t tokens;
};
constexpr AttentionBatch kDecode{"decode", {1, 1, 1, 1, 1, 1}, 8};
constexpr AttentionBatch kNulledRows{"nulled rows", {1, -1, 1, 1, -2, -1}, 16};
constexpr AttentionBatch kPaddingAlone{"padding alone", {0, 0, 0, 0, 0, 0}, 8};
constexpr AttentionBatch kShortChunks{"short chunks", {1, 4, 7, 10, 13, 5}, 48};
// Prompts and rows with few tokens, side by side in a tile and in several.
constexpr AttentionBatch kMixed{"mixed", {1, 75, 33, 32, 31, 2}, 200};
constexpr AttentionBatch kPrompts{"prompts", {3, 1, 150, 64, 200, 17}, 480};

// Rows of very different lengths, a dropped block, shuffled ids; every unowned byte is NaN, and block 0 too.
using Attend = std::function<void(device::Stream&, const ops::AttentionParams&)>;
void run_attention(const AttentionShape& a, int32_t max_len, const AttentionBatch& batch, const Attend& attend,
                   uint32_t seed) {
  constexpr int32_t kRows = 8, kLive = 6;
  const int32_t tokens = batch.tokens;
  const int32_t longest = std::max(max_len, *std::max_element(batch.queries, batch.queries + kLive));
  const int32_t columns = (longest + a.block_size - 1) / a.block_size + 1;
  const int64_t element = a.dtype == DType::kF32 ? 4 : 2;
  const int64_t entry = a.kv_heads * a.hd * element, page = (entry * a.block_size + 127) / 128 * 128;
  const int32_t cols = a.heads * a.hd;
  Twin twin(static_cast<size_t>((kLive * columns + 1) * (2 * page + 128) + tokens * cols * 8) + (size_t{4} << 20),
            seed);
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
    const int32_t query = batch.queries[b];
    if (query <= 0) {
      query_start[b + 1] = t -= query;
      continue;
    }
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
  std::fill(query_start + kLive + 1, query_start + kRows + 1, t);
  step.list_tokens();
  float* q = twin.floats(static_cast<size_t>(tokens * cols), 0.7f);
  for (int32_t i = 0; i < tokens; ++i) {
    if (v.token_row[i] < 0) std::fill_n(q + i * cols, cols, std::numeric_limits<float>::quiet_NaN());
  }
  ops::AttentionParams p{};
  p.q = ops::tensor_f32(q, tokens, cols);
  p.out = ops::tensor_f32(twin.output(static_cast<size_t>(tokens * cols), 1e-5), tokens, cols);
  p.num_heads = a.heads, p.scale = 0.125f, p.layer = layer, p.view = v;
  ops::AttentionParams d = p;
  d.q = twin.there(p.q), d.out = twin.there(p.out), d.layer = twin.there(layer), d.view = step.there(v);
  const std::string what = fmt::format("attention {}/{}/{} block {} {} to {} {}", a.heads, a.kv_heads, a.hd,
                                       a.block_size, dtype_info(a.dtype).name, max_len, batch.name);
  twin.run([&](device::Stream& s) { cpu_ops().attention(s, p); }, [&](device::Stream& s) { attend(s, d); },
           what.c_str());
}

constexpr AttentionShape kShapes[] = {{9, 3, 64, 128, DType::kBF16}, {9, 3, 64, 16, DType::kF16},
                                      {4, 2, 16, 16, DType::kF32},   {8, 2, 128, 16, DType::kBF16},
                                      {4, 4, 32, 4, DType::kBF16},   {14, 2, 64, 20, DType::kBF16},
                                      {32, 2, 128, 16, DType::kF16}, {16, 2, 128, 32, DType::kF32}};

void run_attention_up_to(std::initializer_list<int32_t> lengths, std::initializer_list<AttentionBatch> batches) {
  uint32_t seed = 0;
  for (const AttentionShape& a : kShapes) {
    for (const int32_t max_len : lengths) {
      for (const AttentionBatch& batch : batches) {
        run_attention(a, max_len, batch, cuda_ops(false).attention, ++seed);
        if (batch.tokens < 100 || max_len < 100) run_attention(a, max_len, batch, cuda_ops(true).attention, seed);
      }
    }
  }
}

// What steps with many tokens run, on so few ctas that each has several pieces of work: shared ones, lone ones, both.
void run_in_few_ctas(std::initializer_list<int32_t> lengths, std::initializer_list<AttentionBatch> batches) {
  uint32_t seed = 1000;
  for (const AttentionShape& a : kShapes) {
    for (const int32_t max_len : lengths) {
      for (const AttentionBatch& batch : batches) {
        ++seed;
        for (const auto& [ctas, prefill] : {std::pair(1, false), std::pair(3, true), std::pair(7, false)}) {
          const auto attend = [ctas = ctas, prefill = prefill](device::Stream& s, const ops::AttentionParams& p) {
            ops::cuda::attention_in_ctas(s, p, ctas, prefill);
          };
          run_attention(a, max_len, batch, attend, seed);
        }
      }
    }
  }
}

TEST(Attention, EqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  run_attention_up_to({7, 90, 700}, {kDecode, kNulledRows, kPaddingAlone, kShortChunks, kMixed, kPrompts});
}

TEST(Attention, OfManyTokensEqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  run_in_few_ctas({90, 700}, {kDecode, kNulledRows, kPaddingAlone, kShortChunks, kMixed});
}

// What compute-sanitizer can finish: a run, some runs, two ctas.
TEST(Attention, SmallShapes) {
  BZ_SKIP_WITHOUT_GPU();
  run_attention_up_to({12, 80}, {kDecode, kNulledRows, kPaddingAlone, kShortChunks, kMixed});
  run_in_few_ctas({80}, {kNulledRows, kPaddingAlone, kShortChunks});
}

// The last tokens of a prompt, once as part of it, once as a chunk of their own behind another row's.
TEST(Attention, BitsOfAPromptDependOnNeitherTileNorChunk) {
  BZ_SKIP_WITHOUT_GPU();
  constexpr int32_t kRows = 4, kTokens = 256, kLen = 192, kLast = 50, kBlock = 16, kColumns = kLen / kBlock;
  constexpr int32_t kHeads = 9, kKvHeads = 3, kHd = 64, kCols = kHeads * kHd;
  Twin twin(size_t{8} << 20, 7);
  Step step(twin, kRows, kTokens, kRows + 1, kColumns, kBlock);
  ops::StepView& v = step.p.view;
  constexpr int64_t kEntry = kKvHeads * kHd * 2, kPage = kEntry * kBlock;
  ops::AttentionParams p{};
  p.layer.k = {2 * kPage, 0, kEntry, kBlock};
  p.layer.v = {2 * kPage, kPage, kEntry, kBlock};
  p.layer.num_kv_heads = kKvHeads, p.layer.head_dim = kHd, p.layer.dtype = DType::kBF16;
  auto* cache = twin.take<uint16_t>(static_cast<size_t>((2 * kColumns + 1) * kPage));
  for (int64_t i = kPage; i < (2 * kColumns + 1) * kPage; ++i) {
    cache[i] = f32_to_bf16(std::normal_distribution<float>()(twin.rng));
  }
  p.layer.base = reinterpret_cast<std::byte*>(cache);
  for (int32_t row : {1, 2}) {
    step.p.widths[0][row] = kColumns;
    for (int32_t c = 0; c < kColumns; ++c) {
      step.p.tables[0][row * kColumns + c] = kv::BlockId(static_cast<uint32_t>(1 + 2 * c + row % 2));
    }
  }
  float* of_position = twin.floats(kLen * kCols);  // queries, of either row
  float* q = twin.take<float>(kTokens * kCols, std::numeric_limits<float>::quiet_NaN());
  p.q = ops::tensor_f32(q, kTokens, kCols);
  p.out = ops::tensor_f32(twin.output(kTokens * kCols, 1e-5), kTokens, kCols);
  p.num_heads = kHeads, p.scale = 0.125f;
  struct Chunk {
    int32_t row, begin, end;
  };
  const auto run = [&](const std::vector<Chunk>& chunks) {
    *Step::writable(v.num_valid_rows) = kv::NumValidRows(static_cast<int32_t>(chunks.size()));
    std::fill_n(Step::writable(v.token_row), kTokens, -1);
    std::fill_n(Step::writable(v.positions), kTokens, 0);
    int32_t t = 0;
    for (int32_t b = 0; b < kRows; ++b) {
      const Chunk chunk = b < static_cast<int32_t>(chunks.size()) ? chunks[static_cast<size_t>(b)] : Chunk{0, 0, 0};
      Step::writable(v.query_start)[b] = t;
      Step::writable(v.row_index)[b] = chunk.row;
      Step::writable(v.seq_len)[b] = chunk.end;
      v.groups[0].first_visible[b] = 0;
      for (int32_t position = chunk.begin; position < chunk.end; ++position, ++t) {
        Step::writable(v.token_row)[t] = b;
        Step::writable(v.positions)[t] = position;
        std::copy_n(of_position + position * kCols, kCols, q + t * kCols);
      }
    }
    Step::writable(v.query_start)[kRows] = t;
    step.list_tokens();
    p.view = v;
    ops::AttentionParams d = p;
    d.q = twin.there(p.q), d.out = twin.there(p.out), d.layer = twin.there(p.layer), d.view = step.there(v);
    std::vector<float> last(kLast * kCols);  // of the last chunk
    const auto on_gpu = [&](device::Stream& s) {
      cuda_ops().attention(s, d);
      s.synchronize();
      gpu()->copy_to_host(last.data(), d.out.row<float>(t - kLast), last.size() * sizeof(float));
    };
    twin.run([&](device::Stream& s) { cpu_ops().attention(s, p); }, on_gpu, "chunks");
    return last;
  };
  const std::vector<float> whole = run({{1, 0, kLen}});
  EXPECT_EQ(whole, run({{2, 100, 133}, {1, kLen - kLast, kLen}}));
  EXPECT_NE(whole, run({{2, kLen - kLast, kLen}}));
}

}  // namespace
}  // namespace bz::test
