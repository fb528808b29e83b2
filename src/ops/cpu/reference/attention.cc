// Reference attention: two passes over the visible positions, the first for the maximum, the second for the sums, both
// in ascending position. A key is converted once for all the queries of a tile.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/kv_element.h"
#include "ops/cpu/visible.h"

namespace bz::ops::cpu::reference {
namespace {

constexpr int kTileTokens = 16;

// The queries of up to kTileTokens tokens of one row, for the query heads that share one KV head.
struct Tile {
  const AttentionParams& p;
  int32_t kv_head;
  int64_t t0;
  int tokens;
  VisibleRange range[kTileTokens];
  float max[kTileTokens][kMaxHeadsPerKv];
  float sum[kTileTokens][kMaxHeadsPerKv];

  int group() const { return p.num_heads / p.layer.num_kv_heads; }
  float* head_of(const TensorRef& m, int t, int g) const {
    return m.row<float>(t0 + t) + (kv_head * group() + g) * p.layer.head_dim;
  }
};

float dot(const float* a, const float* b, int32_t n) {
  float sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Calls fn(t, g, score, position's block) for every query that sees `pos`.
template <class Fn>
void for_each_score(const Tile& tile, int32_t pos, const float* key, Fn&& fn) {
  for (int t = 0; t < tile.tokens; ++t) {
    if (pos < tile.range[t].begin || pos >= tile.range[t].end) continue;  // PAD-7
    for (int g = 0; g < tile.group(); ++g) {
      fn(t, g, tile.p.scale * dot(tile.head_of(tile.p.q, t, g), key, tile.p.layer.head_dim));
    }
  }
}

void run_tile(Tile& tile, kv::RowId row) {
  const AttentionParams& p = tile.p;
  const KvLayer& kv = p.layer;
  const int32_t hd = kv.head_dim;
  const GroupStep& group = p.view.groups[p.group];
  int32_t begin = INT32_MAX, end = 0;
  for (int t = 0; t < tile.tokens; ++t) {
    begin = std::min(begin, tile.range[t].begin);
    end = std::max(end, tile.range[t].end);
    for (int g = 0; g < tile.group(); ++g) {
      tile.max[t][g] = -INFINITY;
      tile.sum[t][g] = 0;
      std::memset(tile.head_of(p.out, t, g), 0, sizeof(float) * static_cast<size_t>(hd));
    }
  }
  const int64_t head_offset = static_cast<int64_t>(tile.kv_head) * hd * kv_element_bytes(kv.dtype);
  float key[kMaxHeadDim], value[kMaxHeadDim];
  for (int32_t pos = begin; pos < end; ++pos) {
    const kv::SlotId slot = kv::slot_of(group.view, row, pos);
    if (slot == kv::kPadSlot) continue;
    load_kv(kv.dtype, kv.base + kv::entry_offset(kv.k, slot).value() + head_offset, key, hd);
    for_each_score(tile, pos, key, [&](int t, int g, float s) { tile.max[t][g] = std::max(tile.max[t][g], s); });
  }
  for (int32_t pos = begin; pos < end; ++pos) {
    const kv::SlotId slot = kv::slot_of(group.view, row, pos);
    if (slot == kv::kPadSlot) continue;
    load_kv(kv.dtype, kv.base + kv::entry_offset(kv.k, slot).value() + head_offset, key, hd);
    load_kv(kv.dtype, kv.base + kv::entry_offset(kv.v, slot).value() + head_offset, value, hd);
    for_each_score(tile, pos, key, [&](int t, int g, float s) {
      const float weight = std::exp(s - tile.max[t][g]);
      tile.sum[t][g] += weight;
      float* out = tile.head_of(p.out, t, g);
      for (int32_t i = 0; i < hd; ++i) out[i] += weight * value[i];
    });
  }
  for (int t = 0; t < tile.tokens; ++t) {
    for (int g = 0; g < tile.group(); ++g) {
      if (tile.sum[t][g] == 0.0f) continue;  // saw nothing: stays zero, no 0/0
      float* out = tile.head_of(p.out, t, g);
      for (int32_t i = 0; i < hd; ++i) out[i] /= tile.sum[t][g];
    }
  }
}

// Tokens [t, end) may belong to several rows, or to none.
void run_tokens(const AttentionParams& p, int64_t t, int64_t end, int32_t kv_head) {
  const int32_t group = p.num_heads / p.layer.num_kv_heads;
  while (t < end) {
    const int32_t row = p.view.token_row[t];
    if (!row_is_live(p.view, row)) {  // PAD-5
      float* out = p.out.row<float>(t) + static_cast<int64_t>(kv_head) * group * p.layer.head_dim;
      if (!mutated(Mutation::kEmptyRowsUnwritten)) std::fill_n(out, group * p.layer.head_dim, 0.0f);
      ++t;
      continue;
    }
    Tile tile{p, kv_head, t, 0, {}, {}, {}};
    while (t < end && p.view.token_row[t] == row) tile.range[tile.tokens++] = visible_range(p.view, p.group, row, t++);
    run_tile(tile, kv::RowId(p.view.row_index[row]));
  }
}

}  // namespace

void attention(const AttentionParams& p, Worker& worker) {
  const int64_t tiles = (p.q.rows + kTileTokens - 1) / kTileTokens;
  worker.parallel_for(tiles * p.layer.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t0 = i / p.layer.num_kv_heads * kTileTokens;
      run_tokens(p, t0, std::min<int64_t>(t0 + kTileTokens, p.q.rows), static_cast<int32_t>(i % p.layer.num_kv_heads));
    }
  });
}

size_t attention_scratch_bytes(int32_t, int32_t, int32_t) { return 0; }

}  // namespace bz::ops::cpu::reference
