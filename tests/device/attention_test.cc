// Attention on the GPU against the CPU: decode steps, prompts, and both in one step.
#include "ops/cuda/attention.h"
#include "device/attention_cases.h"

namespace bz::test {
namespace {

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
