// matmul: the fast forms against the scalar statement of their order of sums (bit for bit), against the reference
// (accuracy), and PAD-5, PAD-9a, PAD-9b.
#include "ops/cpu/dequantize.h"
#include "ops/cpu/matmul_order.h"
#include "ops/cpu/ops_test_util.h"

namespace bz::ops::cpu::test {
namespace {

struct TestWeight {
  DType dtype;
  int32_t n, k;
  Guarded<std::byte> bytes;
  Weight view() const { return {bytes.data(), dtype, n, k}; }
  const std::byte* row(int r) const { return bytes.data() + r * row_bytes(dtype, k); }
};

void put16(std::byte* p, uint16_t v) { std::memcpy(p, &v, 2); }

// Random bytes with sensible scales, 2 bytes off every larger alignment.
TestWeight make_weight(DType dtype, int32_t n, int32_t k, uint32_t seed) {
  TestWeight w{dtype, n, k, Guarded<std::byte>(static_cast<size_t>(row_bytes(dtype, k) * n), std::byte{0}, 2)};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  const DTypeInfo info = dtype_info(dtype);
  for (size_t at = 0; at < w.bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
    std::byte* p = w.bytes.data() + at;
    const float x = normal(rng);
    if (dtype == DType::kF32) {
      std::memcpy(p, &x, 4);
    } else if (dtype == DType::kF16) {
      put16(p, f32_to_f16(x));
    } else if (dtype == DType::kBF16) {
      put16(p, f32_to_bf16(x));
    } else {
      for (int i = 0; i < info.block_bytes; ++i) p[i] = static_cast<std::byte>(rng() & 255);
      put16(p, f32_to_f16(x / 8));
      if (dtype == DType::kQ4_1) put16(p + 2, f32_to_f16(-x));
    }
  }
  return w;
}

struct Case {
  std::vector<TestWeight> weights;
  int32_t rows;
  std::vector<float> x;
};

// One run of the op with everything around it guarded and poisoned. outs[part] = [rows, n].
std::vector<std::vector<float>> run_matmul(const OpTable& ops, const Case& c, int32_t num_valid, int threads,
                                           const std::vector<float>* old = nullptr) {
  const int32_t k = c.weights[0].k;
  Floats x(c.x.size());
  copy_in(x, c.x);
  for (int32_t i = num_valid * k; i < c.rows * k; ++i) x[static_cast<size_t>(i)] = kNan;  // PAD-9a
  const kv::NumValidTokens valid(num_valid);
  MatmulParams p{};
  p.x = tensor_f32(x.data(), c.rows, k);
  p.num_valid = ValidCount(&valid);
  p.accumulate = old != nullptr;
  Guarded<std::byte> scratch(ops.matmul_scratch_bytes(c.rows, k), std::byte{0xFF});
  p.scratch = scratch.data();
  p.scratch_bytes = scratch.size();
  std::vector<Floats> outs;
  for (const TestWeight& w : c.weights) {
    outs.emplace_back(static_cast<size_t>(c.rows) * w.n, kNan);
    if (old != nullptr)
      std::memcpy(outs.back().data(), old->data(), sizeof(float) * static_cast<size_t>(num_valid * w.n));
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    p.parts[p.num_parts++] = {c.weights[i].view(), tensor_f32(outs[i].data(), c.rows, c.weights[i].n)};
  }
  run_op(ops.matmul, p, threads);
  x.check("x");
  scratch.check("scratch");
  std::vector<std::vector<float>> result;
  for (size_t i = 0; i < outs.size(); ++i) {
    outs[i].check("out");
    const auto live = static_cast<size_t>(num_valid * c.weights[i].n);
    EXPECT_TRUE(all_zero(outs[i].data() + live, outs[i].size() - live)) << ops.isa << ": padding rows are zeros";
    result.emplace_back(outs[i].data(), outs[i].data() + outs[i].size());
  }
  return result;
}

Case make_case(DType dtype, std::vector<int32_t> n, int32_t k, int32_t rows, uint32_t seed = 1) {
  Case c{{}, rows, random_floats(static_cast<size_t>(rows) * k, seed + 7)};
  for (size_t i = 0; i < n.size(); ++i)
    c.weights.push_back(make_weight(dtype, n[i], k, seed + static_cast<uint32_t>(i)));
  return c;
}

// ---- matmul_order.h in scalar code ----

struct ScalarBlock {
  float scale, sum;
  int32_t q[kBlock];
};

ScalarBlock quantize(const float* x) {
  ScalarBlock b{};
  float amax = 0;
  for (int i = 0; i < kBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
  if (amax < kTinyBlock) return b;
  const float inverse = kQuantMax / amax;
  b.scale = amax / kQuantMax;
  int32_t sum = 0;
  for (int i = 0; i < kBlock; ++i) sum += b.q[i] = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
  b.sum = b.scale * static_cast<float>(sum);
  return b;
}

// Integers, scale and minimum of a weight block.
void unpack(DType dtype, const std::byte* p, int32_t* q, float* d, float* m) {
  uint16_t bits[2];
  std::memcpy(bits, p, 4);
  *d = f16_to_f32(bits[0]);
  *m = dtype == DType::kQ4_1 ? f16_to_f32(bits[1]) : 0.0f;
  const std::byte* qs = p + (dtype == DType::kQ4_1 ? 4 : 2);
  for (int i = 0; i < kBlock; ++i) {
    if (dtype == DType::kQ8_0) {
      q[i] = static_cast<int8_t>(std::to_integer<uint8_t>(qs[i]));
    } else {
      q[i] =
          std::to_integer<int32_t>(i < 16 ? qs[i] & std::byte{15} : qs[i - 16] >> 4) - (dtype == DType::kQ4_0 ? 8 : 0);
    }
  }
}

float dot_by_the_order(const TestWeight& w, int row, const float* x, float acc) {
  const int bytes = dtype_info(w.dtype).block_bytes;
  for (int b = 0; b < w.k / kBlock; ++b) {
    int32_t q[kBlock];
    float d, m;
    unpack(w.dtype, w.row(row) + b * bytes, q, &d, &m);
    const ScalarBlock act = quantize(x + b * kBlock);
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) sum += q[i] * act.q[i];
    acc = std::fma(d, static_cast<float>(sum) * act.scale, acc);
    if (w.dtype == DType::kQ4_1) acc = std::fma(m, act.sum, acc);
  }
  return acc;
}

constexpr DType kQuantized[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr DType kAll[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

// ---- tests ----

TEST(Matmul, IsTheScalarOrderBitForBit) {
  for (const OpTable* ops : fast_tables()) {
    for (const DType dtype : kQuantized) {
      for (const int32_t k : {32, 64, 96, 160, 576, 832, 1536}) {
        for (const int32_t rows : {1, 2, 5, 9, 23}) {
          const Case c = make_case(dtype, {17, 40}, k, rows);
          const auto out = run_matmul(*ops, c, rows, 1);
          for (size_t part = 0; part < 2; ++part) {
            const int32_t n = c.weights[part].n;
            for (int i = 0; i < rows * n; ++i) {
              const float want = dot_by_the_order(c.weights[part], i % n, c.x.data() + i / n * k, 0.0f);
              ASSERT_EQ(out[part][static_cast<size_t>(i)], want)
                  << ops->isa << " " << dtype_info(dtype).name << " k " << k;
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, IsCloseToTheReference) {
  for (const OpTable* ops : fast_tables()) {
    for (const DType dtype : kAll) {
      for (const int32_t k : {64, 576, 1536}) {
        const Case c = make_case(dtype, {33}, k, 7);
        const auto out = run_matmul(*ops, c, 7, 1), want = run_matmul(reference_ops(), c, 7, 1);
        // 16-bit activations: about 2^-16 of the largest of 32, so 5e-5 of the rms; an 8-bit path would have 4e-3.
        EXPECT_LT(relative_rms(out[0].data(), want[0].data(), out[0].size()), 5e-5)
            << ops->isa << " " << dtype_info(dtype).name << " k " << k;
      }
    }
  }
}

TEST(Matmul, PlainWeightsOfAnyWidth) {
  for (const OpTable* ops : all_tables()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int32_t k : {1, 7, 16, 33, 100}) {
        const Case c = make_case(dtype, {5}, k, 6);
        const auto out = run_matmul(*ops, c, 6, 1);
        for (int i = 0; i < 30; ++i) {
          std::vector<float> w(static_cast<size_t>(k));
          dequantize(dtype, c.weights[0].row(i % 5), 0, k, w.data());
          double want = 0, size = 0;
          for (int j = 0; j < k; ++j) {
            want += static_cast<double>(w[static_cast<size_t>(j)]) * c.x[static_cast<size_t>(i / 5 * k + j)];
            size += std::fabs(w[static_cast<size_t>(j)] * c.x[static_cast<size_t>(i / 5 * k + j)]);
          }
          EXPECT_NEAR(out[0][static_cast<size_t>(i)], want, 1e-6 * size + 1e-9) << ops->isa;
        }
      }
    }
  }
}

// PAD-9b: alone, in any batch, at any place, padded or not, with any number of threads.
TEST(Matmul, BitsOfARowDependOnTheRowAlone) {
  for (const OpTable* ops : all_tables()) {
    for (const DType dtype : kAll) {
      const int32_t most = 150, k = 608;
      Case all = make_case(dtype, {48, 21}, k, most);
      std::vector<std::vector<float>> alone(2);  // [part] every row by itself
      for (int32_t t = 0; t < most; t += 29) {
        Case one = all;
        one.rows = 1;
        one.x.assign(all.x.begin() + t * k, all.x.begin() + (t + 1) * k);
        const auto out = run_matmul(*ops, one, 1, 1);
        for (size_t part = 0; part < 2; ++part)
          alone[part].insert(alone[part].end(), out[part].begin(), out[part].end());
      }
      for (const int32_t rows : {1, 2, 3, 4, 7, 8, 9, 16, 30, 64, 70, 150}) {
        Case c = all;
        c.rows = rows;
        c.x.resize(static_cast<size_t>(rows) * k);
        for (const int32_t valid : valid_counts(rows)) {
          const auto out = run_matmul(*ops, c, valid, 1 + valid % 3);
          for (size_t part = 0; part < 2; ++part) {
            const auto n = static_cast<size_t>(all.weights[part].n);
            for (int32_t t = 0; t < valid; t += 29) {
              ASSERT_TRUE(same_bits(out[part].data() + static_cast<size_t>(t) * n,
                                    alone[part].data() + static_cast<size_t>(t / 29) * n, n))
                  << ops->isa << " " << dtype_info(dtype).name << " row " << t << " of " << valid << " in " << rows;
            }
          }
        }
      }
    }
  }
}

TEST(Matmul, SameBitsOnEveryInstructionSet) {
  const auto tables = fast_tables();
  if (tables.size() < 2) GTEST_SKIP() << "one fast instruction set here";
  for (const DType dtype : kAll) {
    for (const int32_t rows : {1, 11, 40}) {
      const Case c = make_case(dtype, {35, 64, 16}, 1056, rows);
      const auto a = run_matmul(*tables[0], c, rows, 2), b = run_matmul(*tables[1], c, rows, 1);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_bits(a[i].data(), b[i].data(), a[i].size())) << dtype_info(dtype).name;
    }
  }
}

TEST(Matmul, AccumulatesOntoLiveRowsOnly) {
  for (const OpTable* ops : all_tables()) {
    for (const DType dtype : {DType::kQ4_1, DType::kF16}) {
      for (const int32_t rows : {1, 6, 20}) {
        const Case c = make_case(dtype, {37}, 320, rows);
        const std::vector<float> old = random_floats(static_cast<size_t>(rows) * 37, 3);
        for (const int32_t valid : valid_counts(rows)) {
          const auto plain = run_matmul(*ops, c, valid, 1), sum = run_matmul(*ops, c, valid, 2, &old);
          for (size_t i = 0; i < static_cast<size_t>(valid) * 37; ++i) {
            EXPECT_NEAR(sum[0][i], plain[0][i] + old[i], 1e-5) << ops->isa;
          }
        }
      }
    }
  }
}

TEST(Matmul, ANanOrInfinityPoisonsItsOwnRowAlone) {
  for (const OpTable* ops : all_tables()) {
    for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
      Case c = make_case(DType::kQ4_1, {32}, 96, 12);
      const auto clean = run_matmul(*ops, c, 12, 1);
      c.x[5 * 96 + 40] = bad;
      const auto out = run_matmul(*ops, c, 12, 1);
      for (size_t t = 0; t < 12; ++t) {
        if (t != 5) {
          EXPECT_TRUE(same_bits(out[0].data() + t * 32, clean[0].data() + t * 32, 32)) << ops->isa;
        } else {
          for (size_t i = 0; i < 32; ++i) EXPECT_FALSE(std::isfinite(out[0][t * 32 + i])) << ops->isa;
        }
      }
    }
  }
}

TEST(Matmul, TinyAndHugeBlocks) {
  for (const OpTable* ops : fast_tables()) {
    Case c = make_case(DType::kQ8_0, {16}, 96, 1);
    for (size_t i = 0; i < 32; ++i) c.x[i] *= 1e-38f;
    for (size_t i = 32; i < 64; ++i) c.x[i] *= 1e30f;
    const auto out = run_matmul(*ops, c, 1, 1), want = run_matmul(reference_ops(), c, 1, 1);
    EXPECT_LT(relative_rms(out[0].data(), want[0].data(), 16), 5e-5) << ops->isa;
  }
}

}  // namespace
}  // namespace bz::ops::cpu::test
