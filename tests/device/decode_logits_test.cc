// The logits of one token in one kernel, against gather, norm and product on the CPU.
#include "device/twin.h"

namespace bz::test {
namespace {

void run_logits(int32_t vocab, int32_t hidden, int32_t index, bool live, uint32_t seed) {
  constexpr int32_t kTokens = 3;  // of which one row of logits is wanted
  Twin twin(size_t{64} << 20, seed);
  const ops::Weight w = random_weight(twin, DType::kQ8_0, vocab, hidden);
  const ops::TensorRef x = ops::tensor_f32(twin.floats(static_cast<size_t>(kTokens * hidden)), kTokens, hidden);
  const ops::TensorRef out = ops::tensor_f32(twin.output(static_cast<size_t>(vocab), 1e-4), 1, vocab);
  const float* norm = twin.floats(static_cast<size_t>(hidden));
  const int32_t* wanted = twin.take<int32_t>(1, index);
  const auto* valid = twin.take<kv::NumValidRows>(1, kv::NumValidRows(live ? 1 : 0));
  const ops::NormLogitsParams d{twin.there(x),
                                twin.there(wanted),
                                twin.there(norm),
                                1e-5f,
                                twin.there(w),
                                twin.there(out),
                                ops::ValidCount(twin.there(valid))};
  ASSERT_TRUE(cuda_ops().supports_norm_logits(d));
  const auto parts = [&](device::Stream& s) {
    std::vector<float> h(static_cast<size_t>(hidden));
    const ops::TensorRef row = ops::tensor_f32(h.data(), 1, hidden);
    std::vector<std::byte> scratch(cpu_ops().matmul_scratch_bytes(1, hidden));
    cpu_ops().gather_rows(s, {x, wanted, row});
    cpu_ops().rms_norm(s, {row, norm, row, 1e-5f, ops::ValidCount(valid)});
    ops::MatmulParams m{};
    m.x = row, m.parts[0] = {w, out}, m.num_parts = 1, m.scratch = scratch.data(), m.scratch_bytes = scratch.size();
    m.num_valid = ops::ValidCount(valid);
    cpu_ops().matmul(s, m);
  };
  twin.run(
      parts, [&](device::Stream& s) { cuda_ops().norm_logits(s, d); },
      fmt::format("logits {}x{} of token {}{}", vocab, hidden, index, live ? "" : ", padded").c_str());
}

TEST(DecodeLogits, EqualItsParts) {
  BZ_SKIP_WITHOUT_GPU();
  uint32_t seed = 1;
  for (const auto& [vocab, hidden] :
       {std::pair(49152, 576), std::pair(320, 64), std::pair(48016, 768), std::pair(16, 320)}) {
    for (const int32_t index : {0, 2, -1}) run_logits(vocab, hidden, index, true, seed++);
    run_logits(vocab, hidden, -1, false, seed++);
  }
}

}  // namespace
}  // namespace bz::test
