// The launchers of matrix products: parameters in, a Linear out, the kernel chosen by heuristics.cc.
#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {

template <DType W>
void launch_matvec(device::Stream& stream, const char* op, const LinearParams& p, const MatvecConfig& config);

namespace {

constexpr int32_t kNumSms = 132;

void run(device::Stream& stream, const char* op, DType dtype, LinearParams& p, [[maybe_unused]] bool invariant) {
  p.num_pairs = count_pairs(p);
  const MatvecConfig config = choose_matvec(p.tokens, p.k, p.num_pairs, kNumSms);
  switch (dtype) {
    case DType::kF32: return launch_matvec<DType::kF32>(stream, op, p, config);
    case DType::kF16: return launch_matvec<DType::kF16>(stream, op, p, config);
    case DType::kBF16: return launch_matvec<DType::kBF16>(stream, op, p, config);
    case DType::kQ4_0: return launch_matvec<DType::kQ4_0>(stream, op, p, config);
    case DType::kQ4_1: return launch_matvec<DType::kQ4_1>(stream, op, p, config);
    case DType::kQ8_0: return launch_matvec<DType::kQ8_0>(stream, op, p, config);
    default: BZ_CHECK_MSG(false, "weight type {}", dtype_info(dtype).name);
  }
}

LinearParams linear_of(const TensorRef& x, ValidCount num_valid) {
  LinearParams p;
  p.x = static_cast<const float*>(x.data);
  p.x_stride = x.row_stride;
  p.tokens = x.rows;
  p.k = x.cols;
  p.num_valid = num_valid;
  return p;
}

void add_part(LinearParams& p, const Weight& w, const TensorRef& out) {
  p.parts[p.num_parts++] = {w.data, w.n, static_cast<float*>(out.data), out.row_stride};
}

// Parts of one type share a launch.
void run_matmul(device::Stream& stream, const MatmulParams& m, bool invariant) {
  check(m);
  for (int first = 0; first < m.num_parts;) {
    LinearParams p = linear_of(m.x, m.num_valid);
    p.epilogue = m.accumulate ? Epilogue::kAccumulate : Epilogue::kStore;
    const DType dtype = m.parts[first].weight.dtype;
    while (first < m.num_parts && m.parts[first].weight.dtype == dtype) {
      add_part(p, m.parts[first].weight, m.parts[first].out);
      ++first;
    }
    run(stream, "matmul", dtype, p, invariant);
  }
}

}  // namespace

void matmul(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, false); }
void matmul_invariant(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, true); }

}  // namespace bz::ops::cuda
