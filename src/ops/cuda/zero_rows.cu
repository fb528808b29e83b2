// Zeros in the empty rows of an output that a kernel which is not ours wrote (PAD-5, ops/foreign).
//
// Every cta has a strip of the columns, for all rows: nothing is handed from one to another. Which rows are empty is
// found out while that kernel still runs: lengths are prepare's.
#include "ops/cuda/checks.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/shape_checks.h"

namespace bz::ops::cuda {
namespace {

constexpr int kStrip = 1024;       // bytes of a row that one cta clears
constexpr int kRowsAtOnce = 1024;  // of a cta: looked up at a time

struct Rows {
  uint4* data;
  int32_t num_rows;
  int32_t row_units;  // 16 bytes each
  int64_t stride_units;
  const int32_t* seq_len;
  const int32_t* token_row;

  __device__ bool empty(int n) const {
    if (n >= num_rows) return false;
    const int row = token_row != nullptr ? token_row[n] : n;
    return row < 0 || seq_len[row] <= 0;
  }
};

template <int WARPS>
__global__ void __launch_bounds__(WARPS* kWarp) zero_rows_kernel(const __grid_constant__ Rows rows) {
  constexpr int kUnits = kStrip / 16, kPass = WARPS * kWarp, kPerLane = kRowsAtOnce / kPass;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int begin = static_cast<int>(blockIdx.x) * kUnits + lane, end = min(begin - lane + kUnits, rows.row_units);
  // Padding lies together (PAD-3): neighbours go to different warps. (Measured: with four neighbours in a warp, one
  // access of the lengths, 32 rows are cleared in 1.2 us instead of 1.3, but 512 in 1.8 instead of 1.4.)
  const auto row_of = [&](int l) { return l * WARPS + warp; };
  for (int first = 0; first < rows.num_rows; first += kRowsAtOnce) {
    bool empty[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) empty[j] = rows.empty(first + j * kPass + row_of(lane));
    if (first == 0) {
      wait_for_previous();
      let_next_start();
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      for (uint32_t left = __ballot_sync(0xffffffffu, empty[j]); left != 0; left &= left - 1) {
        const int64_t n = first + j * kPass + row_of(__ffs(static_cast<int>(left)) - 1);
        for (int i = begin; i < end; i += kWarp) rows.data[n * rows.stride_units + i] = {0, 0, 0, 0};
      }
    }
  }
}

}  // namespace

void zero_rows(device::Stream& stream, const ZeroRowsParams& p) {
  check_shapes(p);
  const Rows rows{static_cast<uint4*>(p.out.data),
                  p.out.rows,
                  static_cast<int32_t>(row_bytes(p.out.dtype, p.out.cols) / 16),
                  row_bytes(p.out.dtype, p.out.row_stride) / 16,
                  p.seq_len,
                  p.token_row};
  const auto strips = static_cast<unsigned>((rows.row_units * 16 + kStrip - 1) / kStrip);
  // More warps have less to look up each, but begin later.
  constexpr int kFewRows = 512;
  if (rows.num_rows <= kFewRows) return launch(stream, "zero_rows", zero_rows_kernel<8>, {strips, 8 * kWarp}, rows);
  launch(stream, "zero_rows", zero_rows_kernel<16>, {strips, 16 * kWarp}, rows);
}

}  // namespace bz::ops::cuda
