// Twin: one arena of bytes, on the host and on the GPU. An op runs on both, with the same parameters at the same
// offsets; then the GPU's whole arena is compared with the host's: outputs within their tolerance, every other byte
// exactly. So what stands between the arrays (sentinels), the inputs and everything an op must not touch is checked
// without a word.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "device/cpu/cpu_stream.h"
#include "device/gpu.h"
#include "ops/cpu/cpu_ops.h"

namespace bz::test {

class Twin {
 public:
  static constexpr size_t kGap = 256;  // bytes of sentinel between arrays

  explicit Twin(size_t bytes, uint32_t seed = 1)
      : rng(seed), bytes_(bytes, std::byte{0xA5}), device_(std::move(gpu()->allocate(bytes).value())) {}

  template <class T>
  T* take(size_t n, T value = T{}) {
    const size_t begin = used_ + kGap;
    used_ = (begin + n * sizeof(T) + 255) / 256 * 256;
    BZ_CHECK_LE(used_ + kGap, bytes_.size());
    T* p = reinterpret_cast<T*>(bytes_.data() + begin);
    std::fill_n(p, n, value);
    return p;
  }
  float* floats(size_t n, float scale = 1.0f) {
    float* p = take<float>(n);
    std::normal_distribution<float> normal(0.0f, scale);
    for (size_t i = 0; i < n; ++i) p[i] = normal(rng);
    return p;
  }
  // An output of the op: poisoned with NaN, compared within `tolerance` of its largest magnitude.
  float* output(size_t n, double tolerance) {
    float* p = take<float>(n, std::numeric_limits<float>::quiet_NaN());
    compare(p, n, DType::kF32, tolerance);
    return p;
  }
  // Compares these n elements with a tolerance instead of exactly.
  void compare(const void* p, size_t n, DType dtype, double tolerance) {
    outputs_.push_back({offset(p), n, dtype, tolerance});
  }

  // The address on the GPU of something in the arena.
  template <class T>
  T* there(T* here) const {
    return here == nullptr ? nullptr : reinterpret_cast<T*>(device_.device() + offset(here));
  }
  ops::TensorRef there(ops::TensorRef t) const {
    t.data = there(t.data);
    return t;
  }
  ops::Weight there(ops::Weight w) const {
    w.data = there(w.data);
    return w;
  }
  ops::KvLayer there(ops::KvLayer layer) const {
    layer.base = there(layer.base);
    return layer;
  }

  // Runs `cpu` on the host's arena, and `cuda` twice on the GPU's, from the same bytes. The runs on the GPU must agree
  // to the bit, and with the host's as said above.
  template <class Cpu, class Cuda>
  void run(Cpu&& cpu, Cuda&& cuda, const char* what) {
    const std::vector<std::byte> before = bytes_;
    device::cpu::ThreadPool pool(1);
    device::cpu::CpuStream cpu_stream(&pool);
    cpu(static_cast<device::Stream&>(cpu_stream));
    const auto stream = gpu()->create_stream();
    std::vector<std::byte> got[2] = {before, before};
    for (auto& g : got) {
      gpu()->copy_to_device(device_.device(), before.data(), before.size());
      cuda(*stream);
      stream->synchronize();
      gpu()->copy_to_host(g.data(), device_.device(), g.size());
    }
    EXPECT_TRUE(got[0] == got[1]) << what << ": two runs differ";
    check(got[0], what);
    bytes_ = before;
  }

  std::mt19937 rng;

 private:
  struct Output {
    size_t offset, n;
    DType dtype;
    double tolerance;
  };
  size_t offset(const void* p) const {
    const auto at = static_cast<size_t>(static_cast<const std::byte*>(p) - bytes_.data());
    BZ_CHECK_LT(at, bytes_.size());
    return at;
  }
  static float element(const std::byte* p, size_t i, DType dtype) {
    if (dtype == DType::kF32) {
      float f;
      std::memcpy(&f, p + 4 * i, 4);
      return f;
    }
    uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    return dtype == DType::kF16 ? f16_to_f32(h) : bf16_to_f32(h);
  }
  void check(const std::vector<std::byte>& got, const char* what) {
    std::vector<bool> loose(bytes_.size(), false);
    for (const Output& o : outputs_) {
      double largest = 0, worst = 0;
      for (size_t i = 0; i < o.n; ++i) {
        const double want = std::abs(double{element(&bytes_[o.offset], i, o.dtype)});
        if (std::isfinite(want)) largest = std::max(largest, want);
      }
      size_t at = 0;
      for (size_t i = 0; i < o.n; ++i) {
        const double want = element(&bytes_[o.offset], i, o.dtype), have = element(&got[o.offset], i, o.dtype);
        const bool same = want == have || (std::isnan(want) && std::isnan(have));  // infinities, and any NaN
        const double error = same ? 0 : std::abs(want - have);
        if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error, at = i;
      }
      EXPECT_LE(worst, o.tolerance * std::max(largest, 1e-3))
          << what << ": element " << at << " of the output at " << o.offset;
      const size_t size = o.dtype == DType::kF32 ? 4 : 2;
      std::fill_n(loose.begin() + static_cast<int64_t>(o.offset), o.n * size, true);
    }
    for (size_t i = 0; i < got.size(); ++i) {
      if (loose[i] || got[i] == bytes_[i]) continue;
      ADD_FAILURE() << what << ": byte " << i << " is " << std::to_integer<int>(got[i]) << ", should be "
                    << std::to_integer<int>(bytes_[i]);
      return;
    }
  }

  std::vector<std::byte> bytes_;
  device::Buffer device_;
  std::vector<Output> outputs_;
  size_t used_ = 0;
};

inline const ops::OpTable& cpu_ops() { return *ops::cpu::table_by_name("reference"); }

// A weight of random blocks of a type, of the size that keeps sums near 1.
inline ops::Weight random_weight(Twin& twin, DType dtype, int32_t n, int32_t k) {
  const auto info = dtype_info(dtype);
  const auto bytes = static_cast<size_t>(row_bytes(dtype, k) * n);
  std::byte* data = twin.take<std::byte>(bytes);
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(k)));
  const auto put = [&](size_t at, uint16_t h) { std::memcpy(data + at, &h, 2); };
  if (info.block_elems == 1) {
    for (size_t i = 0; i < bytes / static_cast<size_t>(info.block_bytes); ++i) {
      const float f = normal(twin.rng);
      if (dtype == DType::kF32) std::memcpy(data + 4 * i, &f, 4);
      if (dtype != DType::kF32) put(2 * i, dtype == DType::kF16 ? f32_to_f16(f) : f32_to_bf16(f));
    }
  } else {
    const float scale = (dtype == DType::kQ8_0 ? 1.0f / 64 : 1.0f / 4) / std::sqrt(static_cast<float>(k));
    for (size_t at = 0; at < bytes; at += static_cast<size_t>(info.block_bytes)) {
      for (int i = 0; i < info.block_bytes; ++i) data[at + static_cast<size_t>(i)] = static_cast<std::byte>(twin.rng());
      put(at, f32_to_f16(scale * (1.0f + 0.5f * static_cast<float>(twin.rng() % 100) / 100)));
      if (dtype == DType::kQ4_1) put(at + 2, f32_to_f16(-7.5f * scale));
    }
  }
  return {data, dtype, n, k};
}

}  // namespace bz::test
