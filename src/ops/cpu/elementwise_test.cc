// embed, rms_norm, silu_mul, gather_rows: against float64, inside guard bands, with NaN in padding and in old outputs;
// the choice of a table.
#include <cstdlib>

#include "ops/cpu/dequantize.h"
#include "ops/cpu/ops_test_util.h"

namespace bz::ops::cpu::test {
namespace {

// x [rows, cols] with NaN rows past `valid`.
Floats padded_input(int32_t rows, int32_t cols, int32_t valid, uint32_t seed, float scale = 1.0f) {
  Floats x(static_cast<size_t>(rows * cols), kNan);
  const auto v = random_floats(static_cast<size_t>(valid * cols), seed, scale);
  copy_in(x, v);
  return x;
}

void expect_padding_zero(const Floats& out, int32_t cols, int32_t valid) {
  out.check("out");
  const auto live = static_cast<size_t>(valid * cols);
  EXPECT_TRUE(all_zero(out.data() + live, out.size() - live));
}

constexpr int32_t kCols[] = {1, 15, 16, 33, 576};
constexpr int32_t kRows[] = {1, 2, 9};

TEST(RmsNorm, IsItsDefinition) {
  for (const OpTable* ops : all_tables()) {
    for (const int32_t cols : kCols) {
      for (const int32_t rows : kRows) {
        for (const int32_t valid : valid_counts(rows)) {
          Floats x = padded_input(rows, cols, valid, 1, 3.0f), out(x.size(), kNan);
          const auto weight = random_floats(static_cast<size_t>(cols), 2);
          const kv::NumValidTokens n(valid);
          RmsNormParams p{tensor_f32(x.data(), rows, cols), weight.data(), tensor_f32(out.data(), rows, cols), 1e-5f,
                          ValidCount(&n)};
          run_op(ops->rms_norm, p, 1 + rows % 3);
          expect_padding_zero(out, cols, valid);
          for (int32_t t = 0; t < valid; ++t) {
            double sum = 0;
            for (int32_t i = 0; i < cols; ++i)
              sum += std::pow(static_cast<double>(x[static_cast<size_t>(t * cols + i)]), 2);
            for (int32_t i = 0; i < cols; ++i) {
              const auto at = static_cast<size_t>(t * cols + i);
              const double want = x[at] / std::sqrt(sum / cols + 1e-5) * weight[static_cast<size_t>(i)];
              ASSERT_NEAR(out[at], want, 2e-6 * std::fabs(want) + 1e-9) << ops->isa;
            }
          }
        }
      }
    }
  }
}

TEST(SiluMul, IsItsDefinitionEverywhere) {
  for (const OpTable* ops : all_tables()) {
    for (const int32_t cols : kCols) {
      const kv::NumValidTokens n(2);
      Floats gate = padded_input(3, cols, 2, 3, 20.0f), up = padded_input(3, cols, 2, 4), out(gate.size(), kNan);
      gate[0] = -200.0f;
      SiluMulParams p{tensor_f32(gate.data(), 3, cols), tensor_f32(up.data(), 3, cols), tensor_f32(out.data(), 3, cols),
                      ValidCount(&n)};
      run_op(ops->silu_mul, p, 2);
      expect_padding_zero(out, cols, 2);
      for (size_t i = 0; i < static_cast<size_t>(2 * cols); ++i) {
        const double g = gate[i], want = g / (1 + std::exp(-g)) * up[i];
        // The exponent's own rounding grows with |g|.
        ASSERT_NEAR(out[i], want, (5e-7 + 1e-7 * std::fabs(g)) * std::fabs(want) + 1e-30) << ops->isa << " gate " << g;
      }
      const std::vector<float> apart(out.data(), out.data() + out.size());
      p.out = p.gate;  // in place
      run_op(ops->silu_mul, p, 1);
      EXPECT_TRUE(same_bits(gate.data(), apart.data(), apart.size())) << ops->isa;
    }
  }
}

TEST(SiluMul, NanStaysNan) {
  for (const OpTable* ops : all_tables()) {
    Floats gate(16, 1.0f), up(16, 1.0f);
    gate[3] = kNan;
    const kv::NumValidTokens n(1);
    SiluMulParams p{tensor_f32(gate.data(), 1, 16), tensor_f32(up.data(), 1, 16), tensor_f32(gate.data(), 1, 16),
                    ValidCount(&n)};
    run_op(ops->silu_mul, p, 1);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(std::isnan(gate[i]), i == 3) << ops->isa;
  }
}

TEST(Embed, CopiesTheDequantisedRow) {
  for (const OpTable* ops : all_tables()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
      constexpr int32_t kDim = 96, kVocab = 11;
      Guarded<std::byte> weight(static_cast<size_t>(row_bytes(dtype, kDim) * kVocab), std::byte{0}, 2);
      std::mt19937 rng(5);
      for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<std::byte>(rng() & 0x3b);
      const int32_t ids[] = {10, 0, 3, 0, 0};
      const kv::NumValidTokens n(3);
      Floats out(5 * kDim, kNan);
      EmbedParams p{ids, {weight.data(), dtype, kVocab, kDim}, tensor_f32(out.data(), 5, kDim), ValidCount(&n)};
      run_op(ops->embed, p, 2);
      expect_padding_zero(out, kDim, 3);
      for (int t = 0; t < 3; ++t) {
        float want[kDim];
        dequantize(dtype, weight.data() + ids[t] * row_bytes(dtype, kDim), 0, kDim, want);
        EXPECT_TRUE(same_bits(out.data() + t * kDim, want, kDim));
      }
    }
  }
}

// Written out by hand from the GGUF definition.
TEST(Dequantize, BlocksByHand) {
  std::byte q4[20] = {};
  const uint16_t d = f32_to_f16(0.5f), m = f32_to_f16(-1.0f);
  std::memcpy(q4, &d, 2);
  std::memcpy(q4 + 2, &m, 2);
  q4[4] = std::byte{0x73};  // element 0: 3, element 16: 7
  float out[32];
  dequantize(DType::kQ4_1, q4, 0, 32, out);
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[16], 2.5f);
  EXPECT_EQ(out[1], -1.0f);
  std::byte q0[18] = {};
  std::memcpy(q0, &d, 2);
  q0[2 + 5] = std::byte{0x1f};  // element 5: 15 - 8, element 21: 1 - 8
  dequantize(DType::kQ4_0, q0, 0, 32, out);
  EXPECT_EQ(out[5], 3.5f);
  EXPECT_EQ(out[21], -3.5f);
  std::byte q8[34] = {};
  std::memcpy(q8, &d, 2);
  q8[2 + 31] = std::byte{0x80};
  dequantize(DType::kQ8_0, q8, 0, 32, out);
  EXPECT_EQ(out[31], -64.0f);
}

TEST(GatherRows, ZerosWhereThereIsNoIndex) {
  for (const OpTable* ops : all_tables()) {
    Floats x(4 * 33), out(6 * 33, kNan);
    copy_in(x, random_floats(x.size(), 6));
    for (size_t i = 0; i < 33; ++i) x[2 * 33 + i] = kNan;
    const int32_t index[] = {3, -1, 0, 1, -1, -1};
    GatherRowsParams p{tensor_f32(x.data(), 4, 33), index, tensor_f32(out.data(), 6, 33)};
    run_op(ops->gather_rows, p, 2);
    out.check("out");
    for (int l = 0; l < 6; ++l) {
      if (index[l] < 0) {
        EXPECT_TRUE(all_zero(out.data() + l * 33, 33));
      } else {
        EXPECT_TRUE(same_bits(out.data() + l * 33, x.data() + index[l] * 33, 33));
      }
    }
  }
}

TEST(Elementwise, SameBitsOnEveryInstructionSet) {
  const auto tables = fast_tables();
  if (tables.size() < 2) GTEST_SKIP() << "one fast instruction set here";
  constexpr int32_t kN = 1000;
  const kv::NumValidTokens n(1);
  std::vector<std::vector<float>> outs;
  for (const OpTable* ops : tables) {
    Floats x = padded_input(1, kN, 1, 9, 5.0f), up = padded_input(1, kN, 1, 10), out(kN), norm(kN);
    SiluMulParams s{tensor_f32(x.data(), 1, kN), tensor_f32(up.data(), 1, kN), tensor_f32(out.data(), 1, kN),
                    ValidCount(&n)};
    run_op(ops->silu_mul, s, 1);
    RmsNormParams r{tensor_f32(x.data(), 1, kN), up.data(), tensor_f32(norm.data(), 1, kN), 1e-5f, ValidCount(&n)};
    run_op(ops->rms_norm, r, 1);
    outs.emplace_back(out.data(), out.data() + kN);
    outs.back().insert(outs.back().end(), norm.data(), norm.data() + kN);
  }
  EXPECT_TRUE(same_bits(outs[0].data(), outs[1].data(), outs[0].size()));
}

TEST(OpTable, IsaIsChosenByNameOrRefused) {
  const auto with = [](const char* value) {
    value == nullptr ? unsetenv("BLOCKZERO_ISA") : setenv("BLOCKZERO_ISA", value, 1);
    auto r = op_table_for(device::DeviceKind::kCpu);
    unsetenv("BLOCKZERO_ISA");
    return r;
  };
  EXPECT_EQ(with("reference").value()->isa, "reference");
  for (const OpTable* t : fast_tables()) EXPECT_EQ(with(std::string(t->isa).c_str()).value(), t);
  EXPECT_EQ(with(nullptr).value(), fastest_table());
  EXPECT_EQ(with("").value(), fastest_table());
  const auto bad = with("sse9");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().exit_code(), 2);
  EXPECT_NE(bad.status().message().find("sse9"), std::string::npos);
  EXPECT_EQ(bad.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace bz::ops::cpu::test
