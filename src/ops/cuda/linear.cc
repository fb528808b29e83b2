// The launchers of matrix products: parameters in, a Linear out, the kernel chosen by heuristics.cc.
#include "ops/cuda/linear.h"
#include "base/check.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/split_linear.h"
#include "ops/cuda/weight_types.h"

namespace bz::ops::cuda {

template <DType W>
void launch_matvec(device::Stream& stream, const char* op, const LinearParams& p, const MatvecConfig& config);
template <DType W>
void launch_matvec_one(device::Stream& stream, const char* op, const LinearParams& p);
template <DType W>
void launch_matvec_stream(device::Stream& stream, const char* op, const LinearParams& p, const StreamConfig& config);
template <DType W>
void launch_mma(device::Stream& stream, const char* op, const LinearParams& p, const MmaConfig& config);

namespace {

template <DType W>
void run_matvec(device::Stream& stream, const char* op, const LinearParams& p) {
  launch_matvec<W>(stream, op, p, choose_matvec(p.tokens, p.k, p.num_pairs, limits_of(stream)));
}

template <DType W>
void run(device::Stream& stream, const char* op, const LinearParams& p, bool invariant) {
  const device::cuda::GpuLimits& gpu = limits_of(stream);
  if (prefer_mma(p.tokens, p.k, gpu.cta_shared_bytes, invariant)) {
    return launch_mma<W>(stream, op, p, choose_mma(p.tokens, p.num_pairs, gpu.num_sms, invariant));
  }
  if (p.tokens == 1 && p.k <= kMaxOneK) return launch_matvec_one<W>(stream, op, p);
  const StreamConfig config = choose_stream(p, W, gpu.num_sms);
  if (config.num_stages > 0 && has_bulk_copies(stream)) return launch_matvec_stream<W>(stream, op, p, config);
  run_matvec<W>(stream, op, p);
}

// What the caller lends; none: all on our own kernels.
struct Scratch {
  void* data;
  size_t bytes;
};

bool can_split(DType dtype, const LinearParams& p, const Scratch& scratch, bool invariant) {
  if (scratch.data == nullptr || scratch.bytes == 0) return false;
  if (!prefer_split(dtype, int64_t{2} * p.num_pairs * p.k, p.tokens, invariant)) return false;
  BZ_CHECK_GE(scratch.bytes, split_scratch_bytes(p.tokens, p.k));
  return true;
}

void run(device::Stream& stream, const char* op, DType dtype, const LinearParams& p, const Scratch& scratch,
         bool invariant) {
  if (can_split(dtype, p, scratch, invariant) && run_split_linear(stream, op, dtype, p, scratch.data)) return;
  dispatch_weight(dtype, [&](auto w) { run<decltype(w)::value>(stream, op, p, invariant); });
}

LinearParams linear_of_x(const TensorRef& x, ValidCount num_valid) {
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
  p.num_pairs = count_pairs(p);
}

// The first part behind `first` whose weights have another type: parts of one type share a launch.
int32_t end_of_type(int32_t first, int32_t num_parts, const auto& weight_of) {
  int32_t end = first;
  while (end < num_parts && weight_of(end).dtype == weight_of(first).dtype) ++end;
  return end;
}

void run_matmul(device::Stream& stream, const MatmulParams& m, bool invariant) {
  check(m);
  const auto weight_of = [&](int32_t i) -> const Weight& { return m.parts[i].weight; };
  for (int32_t first = 0, end = 0; first < m.num_parts; first = end) {
    end = end_of_type(first, m.num_parts, weight_of);
    run(stream, "matmul", weight_of(first).dtype, linear_of(m, first, end), {m.scratch, m.scratch_bytes}, invariant);
  }
}

void run_norm_qkv(device::Stream& stream, const NormQkvParams& n, bool invariant) {
  check(n);
  run(stream, "norm_qkv", n.q.dtype, linear_of(n), {n.scratch, n.scratch_bytes}, invariant);
}

void run_norm_gate_up(device::Stream& stream, const NormGateUpParams& n, bool invariant) {
  check(n);
  run(stream, "norm_gate_up", n.gate.dtype, linear_of(n), {n.scratch, n.scratch_bytes}, invariant);
}

Epilogue epilogue_of(ProductsParams::Op op) {
  switch (op) {
    case ProductsParams::Op::kMatmul: return Epilogue::kStore;
    case ProductsParams::Op::kNormQkv: return Epilogue::kRopeStore;
    case ProductsParams::Op::kNormGateUp: return Epilogue::kSiluMul;
  }
  return Epilogue::kStore;
}

}  // namespace

LinearParams linear_of(const MatmulParams& m, int32_t first, int32_t end) {
  LinearParams p = linear_of_x(m.x, m.num_valid);
  p.accumulate = m.accumulate;
  for (int32_t i = first; i < end; ++i) add_part(p, m.parts[i].weight, m.parts[i].out);
  return p;
}

LinearParams linear_of(const NormQkvParams& n) {
  LinearParams p = linear_of_x(n.x, n.num_valid);
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
  return p;
}

LinearParams linear_of(const NormGateUpParams& n) {
  LinearParams p = linear_of_x(n.x, n.num_valid);
  p.epilogue = Epilogue::kSiluMul;
  p.norm_weight = n.norm_weight;
  p.norm_eps = n.eps;
  add_part(p, n.gate, n.out);
  add_part(p, n.up, n.out);
  return p;
}

void prepare_products(device::Stream& stream, const ProductsParams& w) {
  const auto weight_of = [&](int32_t i) -> const Weight& { return w.weights[i]; };
  for (int32_t first = 0, end = 0; first < w.num_weights; first = end) {
    end = end_of_type(first, w.num_weights, weight_of);
    const DType dtype = weight_of(first).dtype;
    LinearParams p;
    p.tokens = w.tokens;
    p.k = weight_of(first).k;
    p.epilogue = epilogue_of(w.op);
    for (int32_t i = first; i < end; ++i) add_part(p, weight_of(i), {});
    if (can_split(dtype, p, {w.scratch, w.scratch_bytes}, false)) prepare_split_linear(stream, dtype, p, w.scratch);
  }
}

void linear_by_matvec(device::Stream& stream, DType dtype, const LinearParams& p) {
  dispatch_weight(dtype, [&](auto w) { run_matvec<decltype(w)::value>(stream, "matvec", p); });
}

size_t matmul_scratch_bytes(int32_t tokens, int32_t k) {
  return cublas_lt() == nullptr ? 0 : split_scratch_bytes(tokens, k);
}

void matmul(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, false); }
void matmul_invariant(device::Stream& stream, const MatmulParams& m) { run_matmul(stream, m, true); }

void norm_qkv(device::Stream& stream, const NormQkvParams& n) { run_norm_qkv(stream, n, false); }
void norm_qkv_invariant(device::Stream& stream, const NormQkvParams& n) { run_norm_qkv(stream, n, true); }
void norm_gate_up(device::Stream& stream, const NormGateUpParams& n) { run_norm_gate_up(stream, n, false); }
void norm_gate_up_invariant(device::Stream& stream, const NormGateUpParams& n) { run_norm_gate_up(stream, n, true); }

}  // namespace bz::ops::cuda
