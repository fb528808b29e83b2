// A tile of queries of one row and some KV heads, over one split of positions (attention_order.h).
// Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after vec.h.
#pragma once

namespace bz::ops::cpu {

// Where the keys of one row are, from one KV head on. Only kv/slot.h says where a block is (PAD-2).
struct KeySource {
  const kv::GroupView* view;
  const KvLayer* layer;
  kv::RowId row;
  int64_t head_offset;  // bytes inside an entry

  // The first byte of that head's key (value) at `pos`; nullptr for a null block.
  const std::byte* entry(const kv::PageView& page, int32_t pos) const {
    const kv::SlotId slot = kv::slot_of(*view, row, pos);
    if (slot == kv::kPadSlot) return nullptr;
    return layer->base + kv::entry_offset(page, slot).value() + head_offset;
  }
};

// The state of one query over the positions seen so far.
struct Running {
  float m;  // -infinity: nothing seen
  float l;
};

template <class V>
class AttentionTile {
 public:
  AttentionTile(const KeySource& source, int32_t head_dim, int num_heads)
      : source_(source),
        head_dim_(head_dim),
        head_bytes_(head_dim * kv_element_bytes(source.layer->dtype)),
        padded_((head_dim + 15) / 16 * 16),
        num_heads_(num_heads) {}

  int padded() const { return padded_; }

  // Adds a query: `q` [head_dim], scaled to base-2 logarithms. All of the first KV head, then as many of the next.
  void add_query(const float* q, float factor, VisibleRange range) {
    float* dst = q_ + num_queries_ * padded_;
    for (int i = 0; i < padded_; i += 16) {
      V::store(dst + i, V::mul(V::load_n(q + i, std::min(16, head_dim_ - i)), V::set1(factor)));
    }
    range_[num_queries_++] = range;
  }

  // The order of the split that starts at `s0`, for every query: state[i], and a[i * padded()].
  void run_split(int32_t s0, Running* state, float* a) {
    int32_t begin = INT32_MAX, end = 0;
    for (int i = 0; i < num_queries_; ++i) {
      begin = std::min(begin, range_[i].begin);
      end = std::max(end, range_[i].end);
    }
    begin = std::max(begin, s0);
    end = std::min(end, s0 + kSplit);
    const kv::PageView &keys = source_.layer->k, &values = source_.layer->v;
    const int32_t first = begin / kKeyTile * kKeyTile;
    for (int32_t t = first; t < end; t += kKeyTile) {
      const Ahead ahead = t + kKeyTile < end ? Ahead{&keys, t + kKeyTile} : Ahead{&values, first};
      for (int h = 0; h < num_heads_; ++h) {
        present_[(t - s0) / kKeyTile] = convert(keys, h, t, begin, end, ahead);
        score(h, t - s0);
      }
    }
    for (int i = 0; i < num_queries_; ++i) state[i] = softmax(i, s0, begin, end);
    __builtin_memset(a, 0, sizeof(float) * static_cast<size_t>(num_queries_ * padded_));
    for (int32_t t = first; t < end; t += kKeyTile) {
      const Ahead ahead{t + kKeyTile < end ? &values : &keys, t + kKeyTile};
      for (int h = 0; h < num_heads_; ++h) {
        convert(values, h, t, begin, end, ahead);
        add_values(h, t, s0, a);
      }
    }
  }

 private:
  // The tile that is converted after this one: keys or values of all heads, from position t on.
  struct Ahead {
    const kv::PageView* page;
    int32_t t;
  };

  int queries_per_head() const { return num_queries_ / num_heads_; }

  // tile_[k] = key (or value) t + k of head h as f32, zeros where there is none. Returns which are there. Goes through
  // the blocks that hold [t, t + kKeyTile), a run of consecutive entries each.
  uint32_t convert(const kv::PageView& page, int h, int32_t t, int32_t begin, int32_t end, Ahead ahead) {
    const int32_t first = std::max(t, begin), last = std::min(t + kKeyTile, end);
    zero(0, first - t);
    zero(last - t, kKeyTile);
    uint32_t present = 0;
    for (int32_t pos = first, next; pos < last; pos = next) {
      next = std::min(last, (pos / page.block_size + 1) * page.block_size);
      const std::byte* entry = source_.entry(page, pos);
      if (entry == nullptr) {
        zero(pos - t, next - t);
        continue;
      }
      Prefetch prefetch(source_.entry(*ahead.page, ahead.t + (pos - t)), ahead.page->entry_bytes, h * (next - pos),
                        *this);
      convert_run(entry + h * head_bytes_, page.entry_bytes, next - pos, tile_ + (pos - t) * padded_, prefetch);
      present |= (0xffffffffu >> (32 - (next - pos))) << (pos - t);
    }
    return present;
  }

  // Asks for what comes next while this is converted, a head's bytes at a time: of prefetches in one burst the hardware
  // drops most. `run` holds the heads of consecutive entries; each head's conversion asks for its share of them, in
  // the order of memory. Only a hint, so it does not matter what lies there.
  class Prefetch {
   public:
    Prefetch(const std::byte* run, int64_t entry_bytes, int heads_before, const AttentionTile& tile) {
      if (run == nullptr) return;
      bytes_ = tile.head_bytes_;
      num_heads_ = tile.num_heads_;
      left_ = num_heads_ - heads_before % num_heads_;
      gap_ = entry_bytes - num_heads_ * bytes_;
      at_ = run + heads_before / num_heads_ * entry_bytes + heads_before % num_heads_ * bytes_;
    }
    void one_head() {
      for (int i = 0; i < bytes_; i += 64) __builtin_prefetch(at_ + i);
      at_ += bytes_;
      if (--left_ > 0) return;
      left_ = num_heads_;
      at_ += gap_;
    }

   private:
    const std::byte* at_ = nullptr;
    int bytes_ = 0;
    int num_heads_ = 1, left_ = 1;  // in an entry: all, and those still to ask for
    int64_t gap_ = 0;               // from the last of an entry to the first of the next
  };

  void zero(int from, int to) {
    if (from < to)
      __builtin_memset(tile_ + from * padded_, 0, sizeof(float) * static_cast<size_t>((to - from) * padded_));
  }

  void convert_run(const std::byte* entry, int64_t entry_bytes, int count, float* dst, Prefetch& prefetch) const {
    const DType dtype = source_.layer->dtype;
    const int whole = dtype == DType::kF32 ? 0 : head_dim_ / 16 * 16;
    for (int e = 0; e < count; ++e, entry += entry_bytes, dst += padded_) {
      prefetch.one_head();
      if (dtype == DType::kF16) {
        for (int i = 0; i < whole; i += 16) V::store(dst + i, V::load_f16(entry + i * 2));
      } else {
        for (int i = 0; i < whole; i += 16) V::store(dst + i, V::load_bf16(entry + i * 2));
      }
      if (whole == padded_) continue;
      for (int i = whole; i < padded_; ++i) dst[i] = 0.0f;
      load_kv(dtype, entry + whole * kv_element_bytes(dtype), dst + whole, head_dim_ - whole);
    }
  }

  // scores_ of the queries of head h against the keys in tile_, which start `offset` into the split.
  void score(int h, int offset) {
    for (int i = h * queries_per_head(); i < (h + 1) * queries_per_head(); ++i) {
      for (int g = 0; g < kKeyTile; g += 16) {
        V::store(scores_[i] + offset + g, V::dot_each(q_ + i * padded_, tile_ + g * padded_, padded_, padded_ / 16));
      }
    }
  }

  // Which of the 16 positions from `pos` query i sees.
  uint32_t visible16(int i, int32_t pos, int32_t s0) const {
    const auto below = [](int32_t n) { return n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1u; };
    const uint32_t there = present_[(pos - s0) / kKeyTile] >> (pos % kKeyTile);
    return there & below(range_[i].end - pos) & ~below(range_[i].begin - pos);
  }

  // Turns scores_[i] into p.
  Running softmax(int i, int32_t s0, int32_t begin, int32_t end) {
    const int32_t first = begin / 16 * 16;
    const auto none = V::set1(-__builtin_inff());
    auto max = none;
    for (int32_t pos = first; pos < end; pos += 16) {
      float* s = scores_[i] + (pos - s0);
      const auto masked = V::select(visible16(i, pos, s0), V::load(s), none);
      V::store(s, masked);
      max = V::max(max, masked);
    }
    const float m = V::max_lane(max);
    if (m == -__builtin_inff()) return {m, 0.0f};
    auto sum = V::zero();
    for (int32_t pos = first; pos < end; pos += 16) {
      float* s = scores_[i] + (pos - s0);
      const auto p = exp2_of<V>(V::sub(V::load(s), V::set1(m)));
      V::store(s, p);
      sum = V::add(sum, p);
    }
    return {m, V::sum(sum)};
  }

  // a += p * value of head h over the keys in tile_, which start at position t.
  void add_values(int h, int32_t t, int32_t s0, float* a) {
    const int end = (h + 1) * queries_per_head();
    for (int i = h * queries_per_head(); i < end;) {
      const VisibleRange range = in_tile(i, t);
      int n = 1;
      while (n < V::kValueQueries && i + n < end && in_tile(i + n, t).begin == range.begin &&
             in_tile(i + n, t).end == range.end) {
        ++n;
      }
      if (range.begin < range.end) add_values_of<V::kValueQueries>(n, i, t, s0, range, a);
      i += n;
    }
  }
  VisibleRange in_tile(int i, int32_t t) const {
    return {std::max(range_[i].begin - t, 0), std::min(range_[i].end - t, kKeyTile)};
  }
  template <int N>
  void add_values_of(int n, int i, int32_t t, int32_t s0, VisibleRange range, float* a) {
    if constexpr (N > 0) {
      if (n < N) return add_values_of<N - 1>(n, i, t, s0, range, a);
      int c = 0;
      const int chunks = padded_ / 16;
      for (; c + V::kValueChunks <= chunks; c += V::kValueChunks) values<N, V::kValueChunks>(i, c, t, s0, range, a);
      for (; c < chunks; ++c) values<N, 1>(i, c, t, s0, range, a);
    }
  }
  // N queries from i, C chunks of the head from c.
  template <int N, int C>
  void values(int i, int c, int32_t t, int32_t s0, VisibleRange range, float* a) {
    const uint32_t present = present_[(t - s0) / kKeyTile];
    float* out = a + i * padded_ + 16 * c;
    typename V::F acc[N][C];
    BZ_UNROLL
    for (int q = 0; q < N; ++q) {
      BZ_UNROLL
      for (int j = 0; j < C; ++j) acc[q][j] = V::load(out + q * padded_ + 16 * j);
    }
    for (int k = range.begin; k < range.end; ++k) {
      if ((present >> k & 1u) == 0) continue;  // PAD-7
      const float* value = tile_ + k * padded_ + 16 * c;
      BZ_UNROLL
      for (int q = 0; q < N; ++q) {
        const auto p = V::set1(scores_[i + q][t - s0 + k]);
        BZ_UNROLL
        for (int j = 0; j < C; ++j) acc[q][j] = V::fma(p, V::load(value + 16 * j), acc[q][j]);
      }
    }
    BZ_UNROLL
    for (int q = 0; q < N; ++q) {
      BZ_UNROLL
      for (int j = 0; j < C; ++j) V::store(out + q * padded_ + 16 * j, acc[q][j]);
    }
  }

  const KeySource source_;
  const int head_dim_;
  const int head_bytes_;
  const int padded_;
  const int num_heads_;  // KV heads
  int num_queries_ = 0;
  VisibleRange range_[kMaxQueries];
  uint32_t present_[kSplit / kKeyTile];
  alignas(64) float q_[kMaxQueryFloats];
  alignas(64) float scores_[kMaxQueries][kSplit];  // then p
  alignas(64) float tile_[kKeyTile * kMaxHeadDim];
};

// {state, a} += {next_state, next_a}: the next split of a query.
template <class V>
BZ_VEC void merge_split(Running& state, float* a, const Running& next, const float* next_a, int padded) {
  if (next.m == -__builtin_inff()) return;
  if (state.m == -__builtin_inff()) {
    state = next;
    __builtin_memcpy(a, next_a, sizeof(float) * static_cast<size_t>(padded));
    return;
  }
  const auto m0 = V::set1(state.m), m1 = V::set1(next.m);
  const auto max = V::max(m0, m1);
  const auto x = exp2_of<V>(V::sub(m0, max)), y = exp2_of<V>(V::sub(m1, max));
  for (int i = 0; i < padded; i += 16) V::store(a + i, V::fma(V::load(a + i), x, V::mul(V::load(next_a + i), y)));
  state.m = V::first_lane(max);
  state.l = V::first_lane(V::fma(V::set1(state.l), x, V::mul(V::set1(next.l), y)));
}

// out [head_dim] = a / l; zeros if nothing was seen.
template <class V>
BZ_VEC void finish_query(const Running& state, const float* a, int head_dim, float* out) {
  const bool seen = state.m != -__builtin_inff();
  for (int i = 0; i < head_dim; i += 16) {
    const auto v = seen ? V::div(V::load(a + i), V::set1(state.l)) : V::zero();
    V::store_n(out + i, v, std::min(16, head_dim - i));
  }
}

}  // namespace bz::ops::cpu
