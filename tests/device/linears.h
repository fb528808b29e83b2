// Matrix products and the forms fused with them, on the GPU against the CPU's reference.
#pragma once

#include <cuda_runtime_api.h>

#include "device/twin.h"
#include "ops/cuda/linear.h"

namespace bz::test {

// Scratch with sentinels around it, of 0xFF (NaN in bf16 and f32) before each run.
class LentScratch {
 public:
  explicit LentScratch(size_t bytes)
      : bytes_(bytes), memory_(std::move(gpu()->allocate(bytes + 2 * Twin::kGap).value())) {}

  void* data() const { return memory_.device() + Twin::kGap; }
  size_t bytes() const { return bytes_; }
  void poison() const {
    fill(memory_.device(), kSentinel, Twin::kGap);
    fill(memory_.device() + Twin::kGap, 0xFF, bytes_);
    fill(memory_.device() + Twin::kGap + bytes_, kSentinel, Twin::kGap);
    BZ_CHECK_EQ(static_cast<int>(cudaDeviceSynchronize()), 0);
  }
  void expect_kept_to() const {
    for (const std::byte* gap : {memory_.device(), memory_.device() + Twin::kGap + bytes_}) {
      std::byte got[Twin::kGap];
      gpu()->copy_to_host(got, gap, sizeof(got));
      for (const std::byte b : got) EXPECT_EQ(std::to_integer<int>(b), kSentinel);
    }
  }

 private:
  static constexpr int kSentinel = 0xA5;
  static void fill(std::byte* p, int value, size_t bytes) {
    BZ_CHECK_EQ(static_cast<int>(cudaMemset(p, value, bytes)), 0);
  }
  size_t bytes_;
  device::Buffer memory_;
};

struct LinearRun {
  bool batch_invariant = false;
  bool matvec = false;  // matvec.cuh, whatever the op table would choose
  const LentScratch* scratch = nullptr;
  bool graph = false;     // the second of the two runs, which must agree to the bit, is a graph's replay
  int32_t min_nodes = 1;  // of that graph

  void* data() const { return scratch == nullptr ? nullptr : scratch->data(); }
  size_t bytes() const { return scratch == nullptr ? 0 : scratch->bytes(); }
  void matmul(device::Stream& stream, const ops::MatmulParams& p) const {
    if (!matvec) return cuda_ops(batch_invariant).matmul(stream, p);
    ops::cuda::linear_by_matvec(stream, p.parts[0].weight.dtype, ops::cuda::linear_of(p, 0, p.num_parts));
  }
  void norm_qkv(device::Stream& stream, const ops::NormQkvParams& p) const {
    if (!matvec) return cuda_ops(batch_invariant).norm_qkv(stream, p);
    ops::cuda::linear_by_matvec(stream, p.q.dtype, ops::cuda::linear_of(p));
  }
  void norm_gate_up(device::Stream& stream, const ops::NormGateUpParams& p) const {
    if (!matvec) return cuda_ops(batch_invariant).norm_gate_up(stream, p);
    ops::cuda::linear_by_matvec(stream, p.gate.dtype, ops::cuda::linear_of(p));
  }
  // Runs fn(stream), its scratch poisoned.
  template <class Fn>
  void on_gpu(device::Stream& stream, bool second, Fn&& fn) const {
    if (scratch != nullptr) scratch->poison();
    if (graph && second) {
      stream.begin_capture();
      fn(stream);
      const auto captured = stream.end_capture();
      ASSERT_TRUE(captured.ok()) << captured.status().message();
      EXPECT_GE((*captured)->num_nodes(), static_cast<size_t>(min_nodes));
      stream.launch(**captured);
      stream.synchronize();
    } else {
      fn(stream);
    }
    stream.synchronize();
    if (scratch != nullptr) scratch->expect_kept_to();
  }
};

// Of sums over k elements, relative to the largest. Long ones are the tensor cores', which cut off: up to a unit in the
// last place every 16 elements, all to one side.
inline double tolerance_of(int32_t k, double of_short_rows) { return k <= 16384 ? of_short_rows : k / 16 * 0x1p-23; }

struct MatmulShape {
  int32_t tokens, live, n0, n1, k;
  bool accumulate;
};

inline void run_matmul(DType dtype, const MatmulShape& s, const LinearRun& how) {
  const auto tokens = static_cast<size_t>(s.tokens), columns = static_cast<size_t>(s.n0 + s.n1);
  const size_t bytes = tokens * (static_cast<size_t>(s.k) + 2 * columns) * 4 + columns * static_cast<size_t>(s.k) * 4;
  Twin twin(bytes + (size_t{1} << 20), static_cast<uint32_t>(s.tokens * 7 + s.k));
  auto* valid = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(s.live));
  float* x = twin.floats(static_cast<size_t>(s.tokens * s.k));
  std::fill(x + s.live * s.k, x + s.tokens * s.k, std::numeric_limits<float>::quiet_NaN());
  ops::MatmulParams p{};
  p.x = ops::tensor_f32(x, s.tokens, s.k);
  for (const int32_t n : {s.n0, s.n1}) {
    if (n == 0) continue;
    float* out = twin.output(static_cast<size_t>(s.tokens * n), tolerance_of(s.k, 2e-5));
    if (s.accumulate) std::copy_n(twin.floats(static_cast<size_t>(s.tokens * n)), s.tokens * n, out);
    p.parts[p.num_parts++] = {random_weight(twin, dtype, n, s.k), ops::tensor_f32(out, s.tokens, n)};
  }
  p.accumulate = s.accumulate ? 1 : 0;
  p.num_valid = valid;
  ops::MatmulParams d = p;
  d.x = twin.there(p.x);
  for (int i = 0; i < p.num_parts; ++i) d.parts[i] = {twin.there(p.parts[i].weight), twin.there(p.parts[i].out)};
  d.num_valid = twin.there(valid);
  d.scratch = how.data(), d.scratch_bytes = how.bytes();
  const std::string what = fmt::format("{} T {} live {} N {}+{} K {}{}", dtype_info(dtype).name, s.tokens, s.live, s.n0,
                                       s.n1, s.k, s.accumulate ? " accumulate" : "");
  int runs = 0;
  twin.run(
      [&](device::Stream& stream) { cpu_ops().matmul(stream, p); },
      [&](device::Stream& stream) { how.on_gpu(stream, runs++ == 1, [&](device::Stream& on) { how.matmul(on, d); }); },
      what.c_str());
}

struct FusedShape {
  int32_t tokens, live;
  int32_t d = 192, heads = 6, kv_heads = 2, head_dim = 32, inter = 200;
};

// The fused forms against their parts on the CPU, whose intermediate arrays lie outside the arena.
inline void run_fused(DType dtype, const FusedShape& f, ops::RopeStyle style, const LinearRun& how) {
  constexpr int32_t kBlock = 16;
  const double tolerance = tolerance_of(f.d, 3e-5);
  const int32_t tokens = f.tokens, live = f.live, q_dim = f.heads * f.head_dim, kv_dim = f.kv_heads * f.head_dim;
  const auto floats = [&](int32_t rows, int32_t cols) { return size_t{4} * static_cast<size_t>(rows * cols); };
  Twin twin((size_t{8} << 20) + floats(tokens, 2 * f.d + f.head_dim + q_dim + 3 * kv_dim + f.inter) +
                floats(q_dim + 2 * kv_dim + 2 * f.inter, f.d),
            static_cast<uint32_t>(tokens));
  auto* valid = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(live));
  const auto padded = [&](int32_t cols) {
    float* x = twin.floats(static_cast<size_t>(tokens * cols));
    std::fill(x + live * cols, x + tokens * cols, std::numeric_limits<float>::quiet_NaN());
    return ops::tensor_f32(x, tokens, cols);
  };
  const auto output = [&](int32_t cols) {
    return ops::tensor_f32(twin.output(static_cast<size_t>(tokens * cols), tolerance), tokens, cols);
  };
  std::vector<std::vector<float>> own;
  const auto host = [&](int32_t cols) {
    own.emplace_back(static_cast<size_t>(tokens * cols));
    return ops::tensor_f32(own.back().data(), tokens, cols);
  };
  const int64_t entry = int64_t{kv_dim} * 4, page = entry * kBlock, stride = 2 * page;
  const int32_t blocks = tokens / kBlock + 2;
  ops::KvLayer layer;
  layer.base = twin.take<std::byte>(static_cast<size_t>(blocks * stride), std::byte{0});
  twin.compare(layer.base, static_cast<size_t>(blocks * stride / 4), DType::kF32, tolerance);
  layer.k = {stride, 0, entry, kBlock};
  layer.v = {stride, page, entry, kBlock};
  layer.num_kv_heads = f.kv_heads, layer.head_dim = f.head_dim, layer.dtype = DType::kF32;
  auto* slots = twin.take<kv::SlotId>(static_cast<size_t>(tokens), kv::kPadSlot);
  for (int32_t t = 0; t < live; ++t) {
    if (t % 5 != 4) slots[t] = kv::SlotId(int64_t{kBlock} + (t * 7) % tokens);
    for (int32_t u = 0; u < t; ++u) {
      if (slots[u] == slots[t]) slots[t] = kv::kPadSlot;  // no two tokens of a step share a slot
    }
  }
  ops::NormQkvParams a{padded(f.d),
                       twin.floats(static_cast<size_t>(f.d)),
                       1e-5f,
                       random_weight(twin, dtype, q_dim, f.d),
                       random_weight(twin, dtype, kv_dim, f.d),
                       random_weight(twin, dtype, kv_dim, f.d),
                       output(q_dim),
                       padded(f.head_dim),
                       style,
                       slots,
                       layer,
                       valid,
                       nullptr,
                       0};
  ops::NormGateUpParams b{padded(f.d),
                          twin.floats(static_cast<size_t>(f.d)),
                          1e-5f,
                          random_weight(twin, dtype, f.inter, f.d),
                          random_weight(twin, dtype, f.inter, f.d),
                          output(f.inter),
                          valid,
                          nullptr,
                          0};
  ops::NormQkvParams da = a;
  da.x = twin.there(a.x), da.norm_weight = twin.there(a.norm_weight), da.q = twin.there(a.q), da.k = twin.there(a.k);
  da.v = twin.there(a.v), da.q_out = twin.there(a.q_out), da.cos_sin = twin.there(a.cos_sin);
  da.slots = twin.there(a.slots), da.layer = twin.there(a.layer), da.num_valid = twin.there(valid);
  da.scratch = how.data(), da.scratch_bytes = how.bytes();
  ops::NormGateUpParams db = b;
  db.x = twin.there(b.x), db.norm_weight = twin.there(b.norm_weight), db.gate = twin.there(b.gate);
  db.up = twin.there(b.up), db.out = twin.there(b.out), db.num_valid = twin.there(valid);
  db.scratch = how.data(), db.scratch_bytes = how.bytes();
  int runs = 0;
  twin.run(
      [&](device::Stream& s) {
        const ops::TensorRef h = host(f.d), k = host(kv_dim), v = host(kv_dim), up = host(f.inter);
        cpu_ops().rms_norm(s, {a.x, a.norm_weight, h, a.eps, valid});
        ops::MatmulParams m{h, {{a.q, a.q_out}, {a.k, k}, {a.v, v}}, 3, 0, nullptr, 0, valid};
        cpu_ops().matmul(s, m);
        cpu_ops().rope_store(s, {a.q_out, k, v, a.cos_sin, style, slots, layer, valid});
        cpu_ops().rms_norm(s, {b.x, b.norm_weight, h, b.eps, valid});
        m = {h, {{b.gate, b.out}, {b.up, up}}, 2, 0, nullptr, 0, valid};
        cpu_ops().matmul(s, m);
        cpu_ops().silu_mul(s, {b.out, up, b.out, valid});
      },
      [&](device::Stream& stream) {
        how.on_gpu(stream, runs++ == 1, [&](device::Stream& s) {
          how.norm_qkv(s, da);
          how.norm_gate_up(s, db);
        });
      },
      fmt::format("fused {} T {} live {}", dtype_info(dtype).name, tokens, live).c_str());
}

}  // namespace bz::test
