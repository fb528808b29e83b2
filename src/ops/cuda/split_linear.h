// Linear (linear.h) of many tokens as products of bf16 matrices by a library (products.h), which keeps the tensor cores
// busy where our own kernel (matmul_mma.cuh) does not.
//
//   1. x, normed if asked, becomes two bf16 terms, x = xh + xl; zeros where a token is padding (PAD-9a)
//   2. W becomes two as well, W = Wh + Wl, unless it is bf16 and used where it lies
//   3. y = Wh xh + Wh xl + Wl xh in f32; Wl xl, at most 2^-18 of each |W x|, is left out
//   4. finish_pair (epilogue.cuh) of every pair of rows of y, as after our own kernels: padding becomes zeros (PAD-5)
//
// Both sums of 3 are one product each, which walks K once for every pair of terms or has a row for each:
//
//   W bf16    xh above xl      [2T, K]   against W              [N, K]    y [2T, N], summed in 4: W is read once
//   others    xh | xl | xh     [T, 3K]   against Wh | Wh | Wl   [N, 3K]   y [T, N]
//
// 2 to 4 are done in slices of weight rows, so that Wh, Wl and y have bounds and what one writes the next finds in the
// L2 cache.
#pragma once

#include "device/stream.h"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {

struct SplitForm {
  int32_t stacked;  // rows of y a token: terms of x one above the other
  int32_t terms;    // pairs of terms along K
};
constexpr SplitForm split_form(DType weight) { return weight == DType::kBF16 ? SplitForm{2, 1} : SplitForm{1, 3}; }

// ---- slices: pure functions of shapes (split_slices.cc) ----

// Rows [first, first + rows) of each part.
struct LinearSlice {
  int32_t first[3] = {};
  int32_t rows[3] = {};
};
// Most rows of a slice, all parts together.
int32_t slice_rows(const LinearParams& p, DType weight);
// The slice behind this one; {} has the first behind it. False: there is none.
bool next_slice(const LinearParams& p, int32_t max_rows, LinearSlice& slice);
// The slice as a Linear of its own.
LinearParams take_slice(const LinearParams& p, DType weight, const LinearSlice& slice);

// Which columns of y the rows of a slice's parts have: each part begins at 16 bytes.
struct SliceColumns {
  int32_t begin[3] = {};
  int32_t total = 0;
};
SliceColumns slice_columns(const LinearParams& slice);

// ---- scratch ----

struct SplitScratch {
  std::byte* x = nullptr;        // bf16 [stacked * T, terms * K]
  std::byte* weights = nullptr;  // bf16 [slice, 3 K]; unused by bf16 weights
  float* y = nullptr;            // f32 [stacked * T, slice]
  void* workspace = nullptr;     // of the library
};
// Enough for every weight type. Grows with tokens and k alone: 6 bytes for each element of x, and what the slices are
// bounded to.
size_t split_scratch_bytes(int32_t tokens, int32_t k);
SplitScratch split_scratch(void* scratch, int32_t tokens, int32_t k);

// ---- kernels (split_linear.cu) ----

struct SplitXParams {
  const float* x = nullptr;  // f32 [T, k]
  int64_t x_stride = 0;
  int32_t tokens = 0;
  int32_t k = 0;
  const float* norm_weight = nullptr;  // f32 [k]; nullptr: x as it is
  float norm_eps = 0;
  ValidCount num_valid;
  std::byte* out = nullptr;
  SplitForm form;
};
void launch_split_x(device::Stream& stream, const char* op, const SplitXParams& p);

struct SplitWeightsParams {
  const std::byte* weight[3] = {};  // [n, k]
  int32_t n[3] = {};
  SliceColumns columns;
  int32_t k = 0;
  std::byte* out = nullptr;  // bf16 [columns.total, 3 k]; zeros between the parts
};
void launch_split_weights(device::Stream& stream, const char* op, DType weight, const SplitWeightsParams& p);

struct FinishParams {
  LinearParams slice;
  SliceColumns columns;
  const float* y = nullptr;  // f32 [stacked * T, columns.total]
  int32_t stacked = 1;
};
void launch_finish(device::Stream& stream, const char* op, const FinishParams& p);

// ---- the whole (split_linear.cc) ----

// False, with nothing enqueued: there is no library, or it has no algorithm for one of the products.
bool run_split_linear(device::Stream& stream, const char* op, DType weight, const LinearParams& p, void* scratch);
// Chooses and loads what run_split_linear() of these shapes will run. It multiplies whatever the scratch holds, into
// it.
void prepare_split_linear(device::Stream& stream, DType weight, const LinearParams& p, void* scratch);

}  // namespace bz::ops::cuda
