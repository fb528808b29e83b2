// Slices of weight rows, and what they need of the scratch.
#include <algorithm>

#include "base/math.h"
#include "ops/cuda/products.h"
#include "ops/cuda/split_linear.h"

namespace bz::ops::cuda {
namespace {

// Of larger products the library's kernels share the tiles out by a counter, which a node that is no kernel clears: no
// graph of ours may hold one.
constexpr int64_t kMaxYBytes = int64_t{32} << 20;
constexpr int64_t kMaxWeightBytes = int64_t{128} << 20;  // a large K still leaves tiles enough for all multiprocessors
constexpr int32_t kRowUnit = 128;                        // a tile's rows; every head is a whole part of it
constexpr int32_t kMinRows = 2 * kRowUnit;               // kSiluMul takes from two parts
constexpr int32_t kColumnUnit = 4;                       // f32 of 16 bytes
constexpr int64_t kScratchAlignment = 256;
constexpr int64_t kBf16 = 2;

int64_t y_row_bytes(int32_t tokens, int32_t stacked) { return int64_t{4} * stacked * tokens; }
int64_t split_row_bytes(int32_t k, int32_t terms) { return kBf16 * terms * k; }

struct ScratchSizes {
  int64_t x, weights, y;
};
ScratchSizes scratch_sizes(int32_t tokens, int32_t k) {
  return {round_up(kBf16 * 3 * tokens * k, kScratchAlignment),
          round_up(std::max(kMaxWeightBytes, kMinRows * split_row_bytes(k, 3)), kScratchAlignment),
          round_up(std::max(kMaxYBytes, kMinRows * y_row_bytes(tokens, 2)), kScratchAlignment)};
}

}  // namespace

int32_t slice_rows(const LinearParams& p, DType weight) {
  const SplitForm form = split_form(weight);
  int64_t most = kMaxYBytes / y_row_bytes(p.tokens, form.stacked);
  if (form.terms > 1) most = std::min(most, kMaxWeightBytes / split_row_bytes(p.k, form.terms));
  most = std::max<int64_t>(most / kMinRows * kMinRows, kMinRows);
  const int64_t all = slice_columns(p).total;
  const int64_t slices = ceil_div(all, most);
  return static_cast<int32_t>(std::min(most, round_up<int64_t>(ceil_div(all, slices), kMinRows)));
}

bool next_slice(const LinearParams& p, int32_t max_rows, LinearSlice& slice) {
  const bool paired = p.epilogue == Epilogue::kSiluMul;
  int32_t room = paired ? max_rows / 2 : max_rows;
  for (int i = 0; i < p.num_parts; ++i) {
    slice.first[i] += slice.rows[i];
    const int32_t left = p.parts[i].n - slice.first[i];
    slice.rows[i] = left <= room ? left : room / kRowUnit * kRowUnit;
    if (paired) continue;  // the same rows of both
    room = slice.rows[i] < left ? 0 : std::max(0, room - round_up(slice.rows[i], kColumnUnit));
  }
  return std::any_of(slice.rows, slice.rows + p.num_parts, [](int32_t rows) { return rows > 0; });
}

LinearParams take_slice(const LinearParams& p, DType weight, const LinearSlice& slice) {
  LinearParams s = p;
  for (int i = 0; i < p.num_parts; ++i) {
    s.parts[i].weight += row_bytes(weight, p.k) * slice.first[i];
    s.parts[i].n = slice.rows[i];
    if (s.parts[i].out != nullptr) s.parts[i].out += slice.first[i];
  }
  if (p.epilogue == Epilogue::kRopeStore) {
    s.layer.k.offset += row_bytes(p.layer.dtype, slice.first[1]);
    s.layer.v.offset += row_bytes(p.layer.dtype, slice.first[2]);
  }
  s.num_pairs = count_pairs(s);
  return s;
}

SliceColumns slice_columns(const LinearParams& slice) {
  SliceColumns c;
  for (int i = 0; i < slice.num_parts; ++i) {
    c.begin[i] = c.total;
    c.total += round_up(slice.parts[i].n, kColumnUnit);
  }
  return c;
}

size_t split_scratch_bytes(int32_t tokens, int32_t k) {
  const ScratchSizes s = scratch_sizes(tokens, k);
  return static_cast<size_t>(kScratchAlignment + s.x + s.weights + s.y) + kProductWorkspaceBytes;
}

SplitScratch split_scratch(void* scratch, int32_t tokens, int32_t k) {
  const ScratchSizes s = scratch_sizes(tokens, k);
  const auto begin = round_up(reinterpret_cast<uintptr_t>(scratch), static_cast<uintptr_t>(kScratchAlignment));
  auto* x = reinterpret_cast<std::byte*>(begin);
  return {x, x + s.x, reinterpret_cast<float*>(x + s.x + s.weights), x + s.x + s.weights + s.y};
}

}  // namespace bz::ops::cuda
