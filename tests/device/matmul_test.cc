// Matrix products of every weight type, on the GPU against the CPU's reference.
#include <utility>

#include "device/twin.h"

namespace bz::test {
namespace {

struct Shape {
  int32_t tokens, live, n0, n1, k;
  bool accumulate;
};

void run(DType dtype, const Shape& s, bool batch_invariant = false) {
  Twin twin(size_t{40} << 20, static_cast<uint32_t>(s.tokens * 7 + s.k));
  auto* valid = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(s.live));
  float* x = twin.floats(static_cast<size_t>(s.tokens * s.k));
  std::fill(x + s.live * s.k, x + s.tokens * s.k, std::numeric_limits<float>::quiet_NaN());
  ops::MatmulParams p{};
  p.x = ops::tensor_f32(x, s.tokens, s.k);
  for (const int32_t n : {s.n0, s.n1}) {
    if (n == 0) continue;
    float* out = twin.output(static_cast<size_t>(s.tokens * n), 2e-5);
    if (s.accumulate) std::copy_n(twin.floats(static_cast<size_t>(s.tokens * n)), s.tokens * n, out);
    p.parts[p.num_parts++] = {random_weight(twin, dtype, n, s.k), ops::tensor_f32(out, s.tokens, n)};
  }
  p.accumulate = s.accumulate ? 1 : 0;
  p.num_valid = valid;
  ops::MatmulParams d = p;
  d.x = twin.there(p.x);
  for (int i = 0; i < p.num_parts; ++i) d.parts[i] = {twin.there(p.parts[i].weight), twin.there(p.parts[i].out)};
  d.num_valid = twin.there(valid);
  const std::string what = fmt::format("{} T {} live {} N {}+{} K {}{}", dtype_info(dtype).name, s.tokens, s.live, s.n0,
                                       s.n1, s.k, s.accumulate ? " accumulate" : "");
  twin.run([&](device::Stream& stream) { cpu_ops().matmul(stream, p); },
           [&](device::Stream& stream) { cuda_ops(batch_invariant).matmul(stream, d); }, what.c_str());
}

class Matmul : public testing::TestWithParam<DType> {};

TEST_P(Matmul, EqualsReference) {
  BZ_SKIP_WITHOUT_GPU();
  for (const Shape& s :
       {Shape{1, 1, 64, 0, 64, false}, Shape{1, 1, 960, 0, 576, false}, Shape{1, 0, 33, 7, 96, false},
        Shape{1, 1, 576, 0, 1536, true}, Shape{2, 1, 40, 24, 576, false}, Shape{3, 3, 65, 0, 4096, true},
        Shape{8, 5, 192, 64, 576, false}, Shape{9, 8, 192, 0, 1536, true}, Shape{17, 11, 50, 14, 576, false},
        Shape{64, 64, 192, 64, 576, false}, Shape{64, 1, 576, 0, 1536, true}, Shape{130, 129, 320, 0, 576, false}}) {
    run(GetParam(), s);
    run(GetParam(), s, true);
  }
}

// The fused forms against their parts on the CPU, whose intermediate arrays lie outside the arena.
void run_fused(DType dtype, int32_t tokens, int32_t live, ops::RopeStyle style, bool batch_invariant) {
  constexpr int32_t kD = 192, kHeads = 6, kKvHeads = 2, kHd = 32, kInter = 200, kBlock = 16;
  Twin twin(size_t{16} << 20, static_cast<uint32_t>(tokens));
  auto* valid = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(live));
  const auto padded = [&](int32_t cols) {
    float* x = twin.floats(static_cast<size_t>(tokens * cols));
    std::fill(x + live * cols, x + tokens * cols, std::numeric_limits<float>::quiet_NaN());
    return ops::tensor_f32(x, tokens, cols);
  };
  const auto output = [&](int32_t cols) {
    return ops::tensor_f32(twin.output(static_cast<size_t>(tokens * cols), 3e-5), tokens, cols);
  };
  std::vector<std::vector<float>> own;
  const auto host = [&](int32_t cols) {
    own.emplace_back(static_cast<size_t>(tokens * cols));
    return ops::tensor_f32(own.back().data(), tokens, cols);
  };
  const int64_t entry = kKvHeads * kHd * 4, page = entry * kBlock, stride = 2 * page;
  const int32_t blocks = tokens / kBlock + 2;
  ops::KvLayer layer;
  layer.base = twin.take<std::byte>(static_cast<size_t>(blocks * stride), std::byte{0});
  twin.compare(layer.base, static_cast<size_t>(blocks * stride / 4), DType::kF32, 3e-5);
  layer.k = {stride, 0, entry, kBlock};
  layer.v = {stride, page, entry, kBlock};
  layer.num_kv_heads = kKvHeads, layer.head_dim = kHd, layer.dtype = DType::kF32;
  auto* slots = twin.take<kv::SlotId>(static_cast<size_t>(tokens), kv::kPadSlot);
  for (int32_t t = 0; t < live; ++t) {
    if (t % 5 != 4) slots[t] = kv::SlotId(int64_t{kBlock} + (t * 7) % tokens);
    for (int32_t u = 0; u < t; ++u) {
      if (slots[u] == slots[t]) slots[t] = kv::kPadSlot;  // no two tokens of a step share a slot
    }
  }
  ops::NormQkvParams a{padded(kD),
                       twin.floats(kD),
                       1e-5f,
                       random_weight(twin, dtype, kHeads * kHd, kD),
                       random_weight(twin, dtype, kKvHeads * kHd, kD),
                       random_weight(twin, dtype, kKvHeads * kHd, kD),
                       output(kHeads * kHd),
                       padded(kHd),
                       style,
                       slots,
                       layer,
                       valid};
  ops::NormGateUpParams b{padded(kD),
                          twin.floats(kD),
                          1e-5f,
                          random_weight(twin, dtype, kInter, kD),
                          random_weight(twin, dtype, kInter, kD),
                          output(kInter),
                          valid};
  ops::NormQkvParams da = a;
  da.x = twin.there(a.x), da.norm_weight = twin.there(a.norm_weight), da.q = twin.there(a.q), da.k = twin.there(a.k);
  da.v = twin.there(a.v), da.q_out = twin.there(a.q_out), da.cos_sin = twin.there(a.cos_sin);
  da.slots = twin.there(a.slots), da.layer = twin.there(a.layer), da.num_valid = twin.there(valid);
  ops::NormGateUpParams db = b;
  db.x = twin.there(b.x), db.norm_weight = twin.there(b.norm_weight), db.gate = twin.there(b.gate);
  db.up = twin.there(b.up), db.out = twin.there(b.out), db.num_valid = twin.there(valid);
  twin.run(
      [&](device::Stream& s) {
        const ops::TensorRef h = host(kD), k = host(kKvHeads * kHd), v = host(kKvHeads * kHd), up = host(kInter);
        cpu_ops().rms_norm(s, {a.x, a.norm_weight, h, a.eps, valid});
        ops::MatmulParams m{h, {{a.q, a.q_out}, {a.k, k}, {a.v, v}}, 3, 0, nullptr, 0, valid};
        cpu_ops().matmul(s, m);
        cpu_ops().rope_store(s, {a.q_out, k, v, a.cos_sin, style, slots, layer, valid});
        cpu_ops().rms_norm(s, {b.x, b.norm_weight, h, b.eps, valid});
        m = {h, {{b.gate, b.out}, {b.up, up}}, 2, 0, nullptr, 0, valid};
        cpu_ops().matmul(s, m);
        cpu_ops().silu_mul(s, {b.out, up, b.out, valid});
      },
      [&](device::Stream& s) {
        const ops::OpTable& ops = cuda_ops(batch_invariant);
        ops.norm_qkv(s, da);
        ops.norm_gate_up(s, db);
      },
      fmt::format("fused {} T {} live {}", dtype_info(dtype).name, tokens, live).c_str());
}

TEST_P(Matmul, FusedFormsEqualTheirParts) {
  BZ_SKIP_WITHOUT_GPU();
  for (const auto& [tokens, live] : {std::pair{1, 1}, {4, 3}, {12, 9}, {70, 66}}) {
    for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalfSplit}) {
      run_fused(GetParam(), tokens, live, style, false);
      run_fused(GetParam(), tokens, live, style, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Matmul,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ8_0),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

}  // namespace
}  // namespace bz::test
