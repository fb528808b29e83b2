// Matrix products of every weight type, on the GPU against the CPU's reference.
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
  for (const Shape& s : {Shape{1, 1, 64, 0, 64, false}, Shape{1, 1, 960, 0, 576, false}, Shape{1, 0, 33, 7, 96, false},
                         Shape{1, 1, 576, 0, 1536, true}, Shape{2, 1, 40, 24, 576, false},
                         Shape{3, 3, 65, 0, 4096, true}, Shape{8, 5, 192, 64, 576, false},
                         Shape{9, 8, 192, 0, 1536, true}, Shape{17, 11, 50, 14, 576, false},
                         Shape{64, 64, 192, 64, 576, false}, Shape{64, 1, 576, 0, 1536, true},
                         Shape{130, 129, 320, 0, 576, false}}) {
    run(GetParam(), s);
    run(GetParam(), s, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Matmul,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0),
                         [](const auto& i) { return std::string(dtype_info(i.param).name); });

}  // namespace
}  // namespace bz::test
