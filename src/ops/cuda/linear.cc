// The launchers of matrix products: parameters in, a Linear out, the kernel chosen by heuristics.cc.
#include "ops/cuda/linear.h"
#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/kernels.h"

namespace bz::ops::cuda {

template <DType W>
void launch_matvec(device::Stream& stream, const char* op, const LinearParams& p, const MatvecConfig& config);
template <DType W>
void launch_matvec_one(device::Stream& stream, const char* op, const LinearParams& p);
template <DType W>
void launch_mma(device::Stream& stream, const char* op, const LinearParams& p, const MmaConfig& config);

namespace {

constexpr int32_t kNumSms = 132;

template <DType W>
void run(device::Stream& stream, const char* op, const LinearParams& p, bool invariant) {
  if (prefer_mma(p.tokens, invariant)) {
    launch_mma<W>(stream, op, p, choose_mma(p.tokens, p.num_pairs, kNumSms, invariant));
  } else if (p.tokens == 1 && p.k <= kMaxOneK) {
    launch_matvec_one<W>(stream, op, p);
  } else {
    launch_matvec<W>(stream, op, p, choose_matvec(p.tokens, p.k, p.num_pairs, kNumSms));
  }
}

void run(device::Stream& stream, const char* op, DType dtype, LinearParams& p, bool invariant) {
  p.num_pairs = count_pairs(p);
  switch (dtype) {
    case DType::kF32: return run<DType::kF32>(stream, op, p, invariant);
    case DType::kF16: return run<DType::kF16>(stream, op, p, invariant);
    case DType::kBF16: return run<DType::kBF16>(stream, op, p, invariant);
    case DType::kQ4_0: return run<DType::kQ4_0>(stream, op, p, invariant);
    case DType::kQ4_1: return run<DType::kQ4_1>(stream, op, p, invariant);
    case DType::kQ8_0: return run<DType::kQ8_0>(stream, op, p, invariant);
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
    p.accumulate = m.accumulate;
    const DType dtype = m.parts[first].weight.dtype;
    while (first < m.num_parts && m.parts[first].weight.dtype == dtype) {
      add_part(p, m.parts[first].weight, m.parts[first].out);
      ++first;
    }
    run(stream, "matmul", dtype, p, invariant);
  }
}

void run_norm_qkv(device::Stream& stream, const NormQkvParams& n, bool invariant) {
  check(n);
  LinearParams p = linear_of(n.x, n.num_valid);
  p.epilogue = Epilogue::kRopeStore;
  p.norm_weight = n.norm_weight;
  p.norm_eps = n.eps;
  add_part(p, n.q, n.q_out);
  add_part(p, n.k, {});
  add_part(p, n.v, {});
  p.cos_sin = static_cast<const float*>(n.cos_sin.data);
  p.cos_sin_stride = n.cos_sin.row_stride;
  p.style = n.style;
  p.slots = n.slots;
  p.layer = n.layer;
  run(stream, "norm_qkv", n.q.dtype, p, invariant);
}

void run_norm_gate_up(device::Stream& stream, const NormGateUpParams& n, bool invariant) {
  check(n);
  LinearParams p = linear_of(n.x, n.num_valid);
  p.epilogue = Epilogue::kSiluMul;
  p.norm_weight = n.norm_weight;
  p.norm_eps = n.eps;
  add_part(p, n.gate, n.out);
  add_part(p, n.up, n.out);
  run(stream, "norm_gate_up", n.gate.dtype, p, invariant);
}

}  // namespace

void matmul(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, false); }
void matmul_invariant(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, true); }

void norm_qkv(device::Stream& stream, const NormQkvParams& n) { run_norm_qkv(stream, n, false); }
void norm_qkv_invariant(device::Stream& stream, const NormQkvParams& n) { run_norm_qkv(stream, n, true); }
void norm_gate_up(device::Stream& stream, const NormGateUpParams& n) { run_norm_gate_up(stream, n, false); }
void norm_gate_up_invariant(device::Stream& stream, const NormGateUpParams& n) { run_norm_gate_up(stream, n, true); }

}  // namespace bz::ops::cuda
