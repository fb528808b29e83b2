// Steps of attention, on the GPU against the CPU: decode steps, prompts, and both in one step.
#pragma once

#include <functional>

#include "device/step_twin.h"

namespace bz::test {

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
inline constexpr AttentionBatch kDecode{"decode", {1, 1, 1, 1, 1, 1}, 8};
inline constexpr AttentionBatch kNulledRows{"nulled rows", {1, -1, 1, 1, -2, -1}, 16};
inline constexpr AttentionBatch kPaddingAlone{"padding alone", {0, 0, 0, 0, 0, 0}, 8};
inline constexpr AttentionBatch kShortChunks{"short chunks", {1, 4, 7, 10, 13, 5}, 48};
// Prompts and rows with few tokens, side by side in a tile and in several.
inline constexpr AttentionBatch kMixed{"mixed", {1, 75, 33, 32, 31, 2}, 200};
inline constexpr AttentionBatch kPrompts{"prompts", {3, 1, 150, 64, 200, 17}, 480};

// Rows of very different lengths, a dropped block, shuffled ids; every unowned byte is NaN, and block 0 too.
using Attend = std::function<void(device::Stream&, const ops::AttentionParams&)>;
inline void run_attention(const AttentionShape& a, int32_t max_len, const AttentionBatch& batch, const Attend& attend,
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

}  // namespace bz::test
