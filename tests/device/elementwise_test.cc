// The ops that treat every row alone, on the GPU against the CPU's reference.
#include "device/twin.h"

namespace bz::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kRows = 7, kLive = 4;

class Elementwise : public testing::Test {
 protected:
  void SetUp() override {
    BZ_SKIP_WITHOUT_GPU();
    twin = std::make_unique<Twin>(8 << 20);
    valid = twin->take<kv::NumValidTokens>(1, kv::NumValidTokens(kLive));
  }
  // Live rows random, padding rows NaN: nothing may look at them (PAD-9a).
  float* input(int32_t cols) {
    float* p = twin->floats(static_cast<size_t>(kRows * cols));
    std::fill(p + kLive * cols, p + kRows * cols, kNan);
    return p;
  }
  ops::TensorRef output(int32_t cols, double tolerance = 2e-6) {
    return ops::tensor_f32(twin->output(static_cast<size_t>(kRows * cols), tolerance), kRows, cols);
  }
  std::unique_ptr<Twin> twin;
  kv::NumValidTokens* valid = nullptr;
};

TEST_F(Elementwise, EmbedOfEveryType) {
  int32_t* ids = twin->take<int32_t>(kRows);
  for (int i = 0; i < kRows; ++i) ids[i] = i * 5 % 31;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const ops::EmbedParams p{ids, random_weight(*twin, dtype, 31, 192), output(192), valid};
    ops::EmbedParams d = p;
    d.token_ids = twin->there(ids), d.weight = twin->there(p.weight), d.out = twin->there(p.out);
    d.num_valid = twin->there(valid);
    twin->run([&](device::Stream& s) { cpu_ops().embed(s, p); }, [&](device::Stream& s) { cuda_ops().embed(s, d); },
              dtype_info(dtype).name.data());
  }
}

TEST_F(Elementwise, RmsNorm) {
  const ops::RmsNormParams p{ops::tensor_f32(input(576), kRows, 576), twin->floats(576), output(576), 1e-5f, valid};
  ops::RmsNormParams d = p;
  d.x = twin->there(p.x), d.weight = twin->there(p.weight), d.out = twin->there(p.out),
  d.num_valid = twin->there(valid);
  twin->run([&](device::Stream& s) { cpu_ops().rms_norm(s, p); }, [&](device::Stream& s) { cuda_ops().rms_norm(s, d); },
            "rms_norm");
}

TEST_F(Elementwise, RopeTable) {
  int32_t* positions = twin->take<int32_t>(kRows);
  double* freq = twin->take<double>(32);
  for (int i = 0; i < kRows; ++i) positions[i] = i * 1171;
  for (int i = 0; i < 32; ++i) freq[i] = std::pow(1e5, -i / 32.0);
  const ops::RopeTableParams p{positions, freq, output(64), valid};
  ops::RopeTableParams d = p;
  d.positions = twin->there(p.positions), d.inv_freq = twin->there(p.inv_freq), d.cos_sin = twin->there(p.cos_sin);
  d.num_valid = twin->there(valid);
  twin->run([&](device::Stream& s) { cpu_ops().rope_table(s, p); },
            [&](device::Stream& s) { cuda_ops().rope_table(s, d); }, "rope_table");
}

TEST_F(Elementwise, SiluMul) {
  const ops::SiluMulParams p{ops::tensor_f32(input(192), kRows, 192), ops::tensor_f32(input(192), kRows, 192),
                             output(192, 5e-6), valid};
  ops::SiluMulParams d = p;
  d.gate = twin->there(p.gate), d.up = twin->there(p.up), d.out = twin->there(p.out), d.num_valid = twin->there(valid);
  twin->run([&](device::Stream& s) { cpu_ops().silu_mul(s, p); }, [&](device::Stream& s) { cuda_ops().silu_mul(s, d); },
            "silu_mul");
}

TEST_F(Elementwise, GatherRows) {
  int32_t* index = twin->take<int32_t>(3);
  index[0] = 2, index[1] = -1, index[2] = 0;
  const ops::GatherRowsParams p{ops::tensor_f32(input(96), kRows, 96), index,
                                ops::tensor_f32(twin->output(3 * 96, 0), 3, 96)};
  ops::GatherRowsParams d = p;
  d.x = twin->there(p.x), d.index = twin->there(p.index), d.out = twin->there(p.out);
  twin->run([&](device::Stream& s) { cpu_ops().gather_rows(s, p); },
            [&](device::Stream& s) { cuda_ops().gather_rows(s, d); }, "gather_rows");
}

TEST_F(Elementwise, RopeStoreOfEveryCacheType) {
  constexpr int32_t kHeads = 6, kKvHeads = 2, kHd = 64, kBlock = 16;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const ops::RopeStyle style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalfSplit}) {
      const int64_t entry = kKvHeads * kHd * (dtype == DType::kF32 ? 4 : 2);
      const int64_t page = entry * kBlock, stride = 2 * page + 256;
      ops::KvLayer layer;
      layer.base = twin->take<std::byte>(static_cast<size_t>(4 * stride), std::byte{0});
      layer.k = {stride, 128, entry, kBlock};
      layer.v = {stride, 128 + page, entry, kBlock};
      layer.num_kv_heads = kKvHeads, layer.head_dim = kHd, layer.dtype = dtype;
      kv::SlotId* slots = twin->take<kv::SlotId>(kRows, kv::kPadSlot);
      slots[0] = kv::SlotId(int64_t{17}), slots[1] = kv::SlotId(int64_t{63}), slots[3] = kv::SlotId(int64_t{16});
      for (const int64_t slot : {17, 63, 16}) {
        for (const kv::PageView& v : {layer.k, layer.v}) {
          twin->compare(layer.base + kv::entry_offset(v, kv::SlotId(slot)).value(), kKvHeads * kHd, dtype, 5e-3);
        }
      }
      float* q = input(kHeads * kHd);
      float* k = input(kKvHeads * kHd);
      twin->compare(q, kRows * kHeads * kHd, DType::kF32, 2e-6);
      twin->compare(k, kRows * kKvHeads * kHd, DType::kF32, 2e-6);
      const ops::RopeStoreParams p{ops::tensor_f32(q, kRows, kHeads * kHd),
                                   ops::tensor_f32(k, kRows, kKvHeads * kHd),
                                   ops::tensor_f32(input(kKvHeads * kHd), kRows, kKvHeads * kHd),
                                   ops::tensor_f32(input(kHd), kRows, kHd),
                                   style,
                                   slots,
                                   layer,
                                   valid};
      ops::RopeStoreParams d = p;
      d.q = twin->there(p.q), d.k = twin->there(p.k), d.v = twin->there(p.v), d.cos_sin = twin->there(p.cos_sin);
      d.slots = twin->there(p.slots), d.layer = twin->there(p.layer), d.num_valid = twin->there(valid);
      twin->run([&](device::Stream& s) { cpu_ops().rope_store(s, p); },
                [&](device::Stream& s) { cuda_ops().rope_store(s, d); }, dtype_info(dtype).name.data());
    }
  }
}

}  // namespace
}  // namespace bz::test
