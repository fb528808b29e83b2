// The fast attention: who does what. Prefill: an item of work is (tile of tokens, KV head). Decode: an item is (token,
// all KV heads), so that the cache is read once and in order; when there are few tokens, (token, split), merged in a
// second phase. The cut changes no bit (attention_order.h). Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after
// attention_tile.h.
#pragma once

namespace bz::ops::cpu {

template <class V>
class Attention {
 public:
  static void run(const AttentionParams& p, Worker& worker) {
    Attention a(p);
    const int32_t splits = a.splits_worth_sharing(worker.count());
    if (splits > 1) {
      a.run_shared(worker, splits);
    } else {
      a.run_tiles(worker);
    }
  }

  static size_t scratch_bytes(int32_t num_heads, int32_t head_dim, int32_t max_position) {
    const int64_t token =
        int64_t{num_heads} * partial_floats(round_up(head_dim, 16)) * 4 * ceil_div(max_position, kSplit);
    return static_cast<size_t>(std::max(token, std::min(8 * token, kWantedScratch)));
  }

 private:
  static constexpr int64_t kWantedScratch = 4 << 20;

  explicit Attention(const AttentionParams& p)
      : p_(p), kv_heads_(p.layer.num_kv_heads), group_(p.num_heads / p.layer.num_kv_heads), hd_(p.layer.head_dim) {}

  // ---- whole rows ----

  void run_tiles(Worker& worker) const {
    const int floats = group_ * static_cast<int>(round_up(hd_, 16));  // of one token and KV head
    const int most = std::min(kMaxQueries / group_, kMaxQueryFloats / floats);
    const int64_t fair = int64_t{p_.q.rows} * kv_heads_ / (4 * worker.count());
    const int64_t tokens = is_decode() ? 1 : std::clamp<int64_t>(fair, 1, most);
    const bool enough = worker.count() == 1 || p_.view.num_valid_tokens->value() >= 2 * worker.count();
    const int32_t heads = is_decode() && enough ? heads_at_once() : 1;
    const int64_t tiles = ceil_div<int64_t>(p_.q.rows, tokens), head_items = ceil_div(kv_heads_, heads);
    worker.parallel_for(tiles * head_items, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tile = tiles - 1 - i / head_items;  // the long ones of a causal prefill first
        const auto head = static_cast<int32_t>(i % head_items) * heads;
        tokens_of_tile(tile * tokens, std::min<int64_t>((tile + 1) * tokens, p_.q.rows),
                       {head, std::min(head + heads, kv_heads_)});
      }
    });
  }

  // How many KV heads of one token fit into a tile.
  int32_t heads_at_once() const {
    const int floats = group_ * static_cast<int>(round_up(hd_, 16));
    return std::clamp(std::min(kMaxQueries / group_, kMaxQueryFloats / floats), 1, kv_heads_);
  }

  // Does a row bring about one token?
  bool is_decode() const { return p_.view.num_valid_tokens->value() <= 2 * p_.view.num_valid_rows->value(); }

  struct Heads {
    int32_t begin, end;  // KV heads
  };

  // Tokens [t, end) may belong to several rows, or to none.
  void tokens_of_tile(int64_t t, int64_t end, Heads heads) const {
    while (t < end) {
      const int32_t row = p_.view.token_row[t];
      const int64_t begin = t++;
      if (!row_is_live(p_.view, row)) {
        zero_token(begin, heads);
        continue;
      }
      while (t < end && p_.view.token_row[t] == row) ++t;
      tokens_of_row(row, begin, t, heads);
    }
  }

  void tokens_of_row(int32_t row, int64_t begin, int64_t end, Heads heads) const {
    int32_t first = INT32_MAX, last = 0;
    for (int64_t t = begin; t < end; ++t) {
      const VisibleRange range = visible_range(p_.view, p_.group, row, t);
      first = std::min(first, range.begin);
      last = std::max(last, range.end);
    }
    // [KV head][query], and [KV head][query][padded head].
    Running state[kMaxQueries], next[kMaxQueries];
    alignas(64) float a[kMaxQueryFloats], next_a[kMaxQueryFloats];
    const int queries = static_cast<int>(end - begin) * group_, all = (heads.end - heads.begin) * queries;
    const int padded = static_cast<int>(round_up(hd_, 16));
    AttentionTile<V> tile(source(row, heads.begin), hd_, heads.end - heads.begin);
    for (int32_t h = heads.begin; h < heads.end; ++h) {
      for (int64_t t = begin; t < end; ++t) add_token(tile, row, t, h);
    }
    for (int i = 0; i < all; ++i) state[i] = {-__builtin_inff(), 0.0f};
    for (int32_t s = first / kSplit * kSplit; s < last; s += kSplit) {
      tile.run_split(s, next, next_a);
      for (int i = 0; i < all; ++i) merge_split<V>(state[i], a + i * padded, next[i], next_a + i * padded, padded);
    }
    for (int i = 0; i < all; ++i) {
      const int32_t h = heads.begin + i / queries;
      finish_query<V>(state[i], a + i * padded, hd_, out_head(begin + i % queries / group_, h, i % group_));
    }
  }

  // ---- one row among several workers ----

  // The most splits any token has, if the work is too coarse otherwise and the scratch suffices; else 0.
  int32_t splits_worth_sharing(int workers) const {
    const int64_t tokens = p_.view.num_valid_tokens->value();
    if (p_.scratch == nullptr || workers == 1 || tokens == 0 || tokens > 4 * workers) return 0;
    int32_t splits = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t row = p_.view.token_row[t];
      if (!row_is_live(p_.view, row)) continue;
      const VisibleRange r = visible_range(p_.view, p_.group, row, t);
      if (r.begin < r.end) splits = std::max(splits, ceil_div(r.end, kSplit) - r.begin / kSplit);
    }
    const int64_t bytes = tokens * p_.num_heads * splits * partial_floats(round_up(hd_, 16)) * 4;
    return bytes <= static_cast<int64_t>(p_.scratch_bytes) ? splits : 0;
  }

  void run_shared(Worker& worker, int32_t splits) const {
    worker.parallel_for(int64_t{p_.view.num_valid_tokens->value()} * splits, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int32_t h = 0; h < kv_heads_; h += heads_at_once()) {
          share(i / splits, {h, std::min(h + heads_at_once(), kv_heads_)}, static_cast<int32_t>(i % splits), splits);
        }
      }
    });
    worker.barrier();
    worker.parallel_for(int64_t{p_.q.rows} * kv_heads_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) merge_shares(i / kv_heads_, static_cast<int32_t>(i % kv_heads_), splits);
    });
  }

  float* partial(int64_t t, int32_t kv_head, int g, int32_t split, int32_t splits) const {
    const int64_t index = (t * p_.num_heads + kv_head * group_ + g) * splits + split;
    return static_cast<float*>(p_.scratch) + index * partial_floats(round_up(hd_, 16));
  }

  void share(int64_t t, Heads heads, int32_t split, int32_t splits) const {
    const int32_t row = p_.view.token_row[t];
    if (!row_is_live(p_.view, row)) return;
    AttentionTile<V> tile(source(row, heads.begin), hd_, heads.end - heads.begin);
    VisibleRange range;
    for (int32_t h = heads.begin; h < heads.end; ++h) range = add_token(tile, row, t, h);
    const int32_t s0 = (range.begin / kSplit + split) * kSplit;
    if (s0 >= range.end) return;
    Running state[kMaxQueries];
    alignas(64) float a[kMaxQueryFloats];
    tile.run_split(s0, state, a);
    for (int i = 0; i < (heads.end - heads.begin) * group_; ++i) {
      float* out = partial(t, heads.begin + i / group_, i % group_, split, splits);
      out[0] = state[i].m;
      out[1] = state[i].l;
      __builtin_memcpy(out + kPartialHeader, a + i * tile.padded(), sizeof(float) * static_cast<size_t>(tile.padded()));
    }
  }

  void merge_shares(int64_t t, int32_t kv_head, int32_t splits) const {
    const int32_t row = p_.view.token_row[t];
    if (!row_is_live(p_.view, row)) return zero_token(t, {kv_head, kv_head + 1});
    const VisibleRange range = visible_range(p_.view, p_.group, row, t);
    const int32_t own = range.begin < range.end ? ceil_div(range.end, kSplit) - range.begin / kSplit : 0;
    alignas(64) float a[kMaxHeadDim];
    for (int g = 0; g < group_; ++g) {
      Running state{-__builtin_inff(), 0.0f};
      for (int32_t s = 0; s < own; ++s) {
        const float* next = partial(t, kv_head, g, s, splits);
        merge_split<V>(state, a, {next[0], next[1]}, next + kPartialHeader, static_cast<int>(round_up(hd_, 16)));
      }
      finish_query<V>(state, a, hd_, out_head(t, kv_head, g));
    }
  }

  // ---- parts of both ----

  KeySource source(int32_t row, int32_t kv_head) const {
    return {&p_.view.groups[p_.group].view, &p_.layer, kv::RowId(p_.view.row_index[row]),
            int64_t{kv_head} * hd_ * kv_element_bytes(p_.layer.dtype)};
  }
  VisibleRange add_token(AttentionTile<V>& tile, int32_t row, int64_t t, int32_t kv_head) const {
    const VisibleRange range = visible_range(p_.view, p_.group, row, t);
    for (int g = 0; g < group_; ++g) {
      tile.add_query(p_.q.row<float>(t) + int64_t{kv_head * group_ + g} * hd_, p_.scale * kLog2e, range);
    }
    return range;
  }
  float* out_head(int64_t t, int32_t kv_head, int g) const {
    return p_.out.row<float>(t) + int64_t{kv_head * group_ + g} * hd_;
  }
  void zero_token(int64_t t, Heads heads) const {  // PAD-5
    if (mutated(Mutation::kEmptyRowsUnwritten)) return;
    __builtin_memset(out_head(t, heads.begin, 0), 0,
                     sizeof(float) * static_cast<size_t>((heads.end - heads.begin) * group_ * hd_));
  }

  const AttentionParams& p_;
  const int32_t kv_heads_;
  const int32_t group_;
  const int32_t hd_;
};

}  // namespace bz::ops::cpu
