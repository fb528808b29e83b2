// The fast matmul: quantise the input once, then share out the columns of all parts among the workers.
//
// Few rows: every item of work is some 16-column groups straight from the GGUF rows. Many rows: an item is a panel of
// columns times a run of rows (kRowsPerItem, so that their activations stay in L2), and the panel is unpacked once per
// item. Both follow matmul_order.h. Weights are never repacked in memory.
// Include between BZ_ISA_*_BEGIN and BZ_ISA_END, after matmul_tile.h and matmul_float.h.
#pragma once

namespace bz::ops::cpu {

template <class V>
class Matmul {
 public:
  static void run(const MatmulParams& p, Worker& worker) {
    const Matmul m(p);
    ActBlock own[kOwnBlocks];
    const ActBlock* acts = m.quantize(worker, own);
    const int rows_per_item = m.direct() ? p.x.rows : kRowsPerItem;
    const int64_t row_items = (p.x.rows + rows_per_item - 1) / rows_per_item;
    const int64_t column_items = m.count_items();
    const int64_t grain = m.direct() ? std::clamp<int64_t>(column_items / (worker.count() * 6), 1, 16) : 1;
    worker.parallel_for(row_items * column_items, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32_t row = static_cast<int32_t>(i / column_items) * rows_per_item;
        m.item(acts, i % column_items, row, std::min(row + rows_per_item, p.x.rows));
      }
    });
  }

 private:
  static constexpr int kRowsPerItem = 128;
  static constexpr int kOwnBlocks = 256;   // activations of few rows: each worker quantises its own copy
  static constexpr int kChunkBlocks = 24;  // blocks of K at a time: bounds what lies on the stack, no result
  static constexpr int kItemColumns = 16 * V::kPanelGroups;
  static constexpr int kGroupsAhead = 2;  // groups (or panels) of 16 rows between what is used and what is fetched

  explicit Matmul(const MatmulParams& p) : p_(p), num_blocks_(p.x.cols / kBlock), num_valid_(p.num_valid.get()) {}

  bool direct() const { return num_valid_ <= V::kMaxDirect; }
  int columns_per_item() const { return direct() ? 16 : kItemColumns; }
  static bool is_quantized(DType t) { return t == DType::kQ4_0 || t == DType::kQ4_1 || t == DType::kQ8_0; }

  int64_t count_items() const {
    int64_t n = 0;
    for (int i = 0; i < p_.num_parts; ++i) n += ceil_div(p_.parts[i].weight.n, columns_per_item());
    return n;
  }

  const ActBlock* quantize(Worker& worker, ActBlock* own) const {
    bool any = false;
    for (int i = 0; i < p_.num_parts; ++i) any |= is_quantized(p_.parts[i].weight.dtype);
    if (!any || num_valid_ == 0) return nullptr;
    if (int64_t{num_valid_} * num_blocks_ <= kOwnBlocks) {  // cheaper than a barrier
      for (int t = 0; t < num_valid_; ++t) quantize_row<V>(p_.x.row<float>(t), num_blocks_, own + t * num_blocks_);
      return own;
    }
    auto* acts = static_cast<ActBlock*>(p_.scratch);
    worker.parallel_for(num_valid_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) quantize_row<V>(p_.x.row<float>(t), num_blocks_, acts + t * num_blocks_);
    });
    worker.barrier();
    return acts;
  }

  // Columns of item `index` for rows [begin, end), padding included.
  void item(const ActBlock* acts, int64_t index, int32_t begin, int32_t end) const {
    int part = 0;
    for (;; ++part) {
      const int64_t items = ceil_div(p_.parts[part].weight.n, columns_per_item());
      if (index < items) break;
      index -= items;
    }
    const MatmulPart& mp = p_.parts[part];
    const int32_t n0 = static_cast<int32_t>(index) * columns_per_item();
    const int32_t columns = std::min(columns_per_item(), mp.weight.n - n0);
    const int32_t live_end = std::min(end, num_valid_);
    const bool quantized = is_quantized(mp.weight.dtype);
    // Padding rows are zeros, and so is what a quantised sum starts from (PAD-5).
    const int32_t zero_from = quantized && !p_.accumulate ? begin : std::max(begin, live_end);
    for (int32_t t = zero_from; t < end; ++t) {
      __builtin_memset(mp.out.template row<float>(t) + n0, 0, sizeof(float) * static_cast<size_t>(columns));
    }
    if (begin >= live_end) return;
    switch (mp.weight.dtype) {
      case DType::kQ4_0: return blocks<DType::kQ4_0>(mp, acts, n0, columns, begin, live_end);
      case DType::kQ4_1: return blocks<DType::kQ4_1>(mp, acts, n0, columns, begin, live_end);
      case DType::kQ8_0: return blocks<DType::kQ8_0>(mp, acts, n0, columns, begin, live_end);
      case DType::kF16: return floats<DType::kF16>(mp, n0, columns, begin, live_end);
      case DType::kBF16: return floats<DType::kBF16>(mp, n0, columns, begin, live_end);
      default: return floats<DType::kF32>(mp, n0, columns, begin, live_end);
    }
  }

  // ---- quantised weights ----

  template <DType T>
  void blocks(const MatmulPart& mp, const ActBlock* acts, int32_t n0, int32_t columns, int32_t begin,
              int32_t end) const {
    for (int b0 = 0; b0 < num_blocks_; b0 += kChunkBlocks) {
      const int count = std::min(kChunkBlocks, num_blocks_ - b0);
      const TileRows rows{acts + int64_t{begin} * num_blocks_ + b0, num_blocks_, mp.out.template row<float>(begin) + n0,
                          mp.out.row_stride};
      if (direct()) {
        direct_chunk<T>(mp.weight, n0, columns, b0, count, rows, end - begin);
      } else {
        panel_chunk<T>(mp.weight, n0, columns, b0, count, rows, end - begin);
      }
    }
  }

  // The 16 rows of a group over a chunk of blocks. A group with fewer rows is copied to where reading 16 is safe.
  template <DType T>
  struct Group {
    static constexpr int kBytes = WeightBlocks<V, T>::kBytes;
    Group(const Weight& w, int32_t n0, int columns, int b0, int num_blocks, int64_t groups_ahead) {
      const int64_t stride = int64_t{w.k} / kBlock * kBytes;
      weights = {w.data + n0 * stride + int64_t{b0} * kBytes, stride, 16 * groups_ahead * stride, scales};
      if (columns < 16) {
        const int64_t bytes = int64_t{num_blocks} * kBytes;
        __builtin_memset(copy, 0, sizeof(copy));
        for (int r = 0; r < columns; ++r) {
          __builtin_memcpy(copy + r * bytes, weights.rows + r * stride, static_cast<size_t>(bytes));
        }
        weights = {copy, bytes, 0, scales};
      }
      if constexpr (WeightBlocks<V, T>::kScalesApart) {
        collect_f16(weights.rows, weights.stride, kBytes, num_blocks, scales);
      }
    }
    TileWeights weights;
    alignas(32) uint16_t scales[kChunkBlocks][16];
    std::byte copy[16 * kChunkBlocks * kBytes];
  };

  template <DType T>
  static void direct_chunk(const Weight& w, int32_t n0, int32_t columns, int b0, int num_blocks, TileRows rows,
                           int num_rows) {
    const Group<T> g(w, n0, columns, b0, num_blocks, kGroupsAhead);
    for (; num_rows > V::kDirectRows; num_rows -= V::kDirectRows) {
      direct_tile<V, T, V::kDirectRows>(g.weights, num_blocks, rows, columns);
      rows.acts += V::kDirectRows * rows.act_stride;
      rows.out += V::kDirectRows * rows.out_stride;
    }
    direct_rows<T, V::kDirectRows>(g.weights, num_blocks, rows, num_rows, columns);
  }
  template <DType T, int R>
  static void direct_rows(const TileWeights& w, int num_blocks, const TileRows& rows, int num_rows, int columns) {
    if constexpr (R > 0) {
      if (num_rows < R) return direct_rows<T, R - 1>(w, num_blocks, rows, num_rows, columns);
      direct_tile<V, T, R>(w, num_blocks, rows, columns);
    }
  }

  template <DType T>
  static void panel_chunk(const Weight& w, int32_t n0, int32_t columns, int b0, int num_blocks, const TileRows& rows,
                          int num_rows) {
    PanelBlock panel[V::kPanelGroups * kChunkBlocks];
    const int groups = ceil_div(columns, 16);
    for (int g = 0; g < groups; ++g) {
      const Group<T> group(w, n0 + 16 * g, std::min(16, columns - 16 * g), b0, num_blocks,
                           kGroupsAhead * V::kPanelGroups);
      unpack_panel<V, T>(group.weights, num_blocks, panel + g * num_blocks);
    }
    panel_groups<WeightBlocks<V, T>::kHasMin, V::kPanelGroups>(panel, groups, num_blocks, rows, num_rows,
                                                               columns - 16 * (groups - 1));
  }
  template <bool HasMin, int G>
  static void panel_groups(const PanelBlock* panel, int groups, int num_blocks, TileRows rows, int num_rows,
                           int last_columns) {
    if constexpr (G > 0) {
      if (groups < G) return panel_groups<HasMin, G - 1>(panel, groups, num_blocks, rows, num_rows, last_columns);
      for (; num_rows >= V::kPanelRows; num_rows -= V::kPanelRows) {
        panel_tile<V, HasMin, V::kPanelRows, G>(panel, num_blocks, num_blocks, rows, last_columns);
        rows.acts += V::kPanelRows * rows.act_stride;
        rows.out += V::kPanelRows * rows.out_stride;
      }
      panel_rest<HasMin, V::kPanelRows - 1, G>(panel, num_blocks, rows, num_rows, last_columns);
    }
  }
  template <bool HasMin, int R, int G>
  static void panel_rest(const PanelBlock* panel, int num_blocks, const TileRows& rows, int num_rows,
                         int last_columns) {
    if constexpr (R > 0) {
      if (num_rows < R) return panel_rest<HasMin, R - 1, G>(panel, num_blocks, rows, num_rows, last_columns);
      panel_tile<V, HasMin, R, G>(panel, num_blocks, num_blocks, rows, last_columns);
    }
  }

  // ---- plain weights ----

  template <DType T>
  void floats(const MatmulPart& mp, int32_t n0, int32_t columns, int32_t begin, int32_t end) const {
    for (int32_t c = 0; c < columns;) {
      const bool wide = columns - c >= V::kFloatCols;
      for (int32_t t = begin; t < end;) {
        const bool tall = end - t >= V::kFloatRows;
        if (wide && tall) {
          float_at<T, V::kFloatRows, V::kFloatCols>(mp, n0 + c, t);
        } else if (wide) {
          float_at<T, 1, V::kFloatCols>(mp, n0 + c, t);
        } else if (tall) {
          float_at<T, V::kFloatRows, 1>(mp, n0 + c, t);
        } else {
          float_at<T, 1, 1>(mp, n0 + c, t);
        }
        t += tall ? V::kFloatRows : 1;
      }
      c += wide ? V::kFloatCols : 1;
    }
  }
  template <DType T, int R, int C>
  void float_at(const MatmulPart& mp, int32_t n, int32_t t) const {
    const int64_t stride = int64_t{mp.weight.k} * dtype_info(T).block_bytes;
    float_tile<V, T, R, C>(mp.weight.data + n * stride, stride, mp.weight.k, p_.x.row<float>(t), p_.x.row_stride,
                           mp.out.template row<float>(t) + n, mp.out.row_stride, p_.accumulate != 0);
  }

  const MatmulParams& p_;
  int32_t num_blocks_;
  int32_t num_valid_;
};

}  // namespace bz::ops::cpu
