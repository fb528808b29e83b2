// What the benchmarks of CUDA ops share: inputs on the device, and what a node of a graph costs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/half.h"
#include "device/device.h"
#include "ops/op_table.h"

namespace bz::bench {

struct Bench {
  device::Device& device;
  const ops::OpTable& ops;
  std::unique_ptr<device::Stream> stream = device.create_stream();
  std::vector<device::Buffer> buffers;
  std::mt19937_64 rng{1};

  std::byte* allocate(size_t bytes) {
    buffers.push_back(std::move(device.allocate(bytes).value()));
    return buffers.back().device();
  }
  template <class T>
  T* upload(const std::vector<T>& v) {
    std::byte* p = allocate(v.size() * sizeof(T));
    device.copy_to_device(p, v.data(), v.size() * sizeof(T));
    return reinterpret_cast<T*>(p);
  }
  ops::TensorRef random(int32_t rows, int32_t cols) {
    std::vector<float> v(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    std::normal_distribution<float> normal;
    repeat(v.data(), v.size(), [&] { return normal(rng); });
    return ops::tensor_f32(upload(v), rows, cols);
  }
  // Random quantised bytes, small scales; bf16: normal, of the size that keeps sums near 1.
  ops::Weight weight(DType dtype, int32_t n, int32_t k) {
    if (dtype == DType::kBF16) {
      std::vector<uint16_t> halves(static_cast<size_t>(n) * static_cast<size_t>(k));
      std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(k)));
      repeat(halves.data(), halves.size(), [&] { return f32_to_bf16(normal(rng)); });
      return {reinterpret_cast<const std::byte*>(upload(halves)), dtype, n, k};
    }
    std::vector<std::byte> v(static_cast<size_t>(row_bytes(dtype, k) * n));
    for (std::byte& b : v) b = static_cast<std::byte>(rng());
    const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
    for (size_t i = 0; i < v.size(); i += block) {
      v[i + 1] = std::byte{0x20};
      if (dtype == DType::kQ4_1) v[i + 3] = std::byte{0xA0};
    }
    return {upload(v), dtype, n, k};
  }
  // A few thousand values of `next` over and over: what they are does not matter, that they differ does.
  template <class T, class Fn>
  static void repeat(T* out, size_t n, Fn&& next) {
    constexpr size_t kSome = 65537;
    for (size_t i = 0; i < std::min(n, kSome); ++i) out[i] = next();
    for (size_t i = kSome; i < n; i += kSome) std::copy_n(out, std::min(n - i, kSome), out + i);
  }
  // Microseconds of one of `n` nodes; fn(i) enqueues node i.
  double node_us(int n, const std::function<void(int)>& fn) {
    stream->begin_capture();
    for (int i = 0; i < n; ++i) fn(i);
    const auto graph = stream->end_capture().value();
    std::vector<double> t;
    for (int r = 0; r < 11; ++r) {
      stream->synchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int k = 0; k < 4; ++k) stream->launch(*graph);
      stream->synchronize();
      t.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6 / 4 / n);
    }
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
  }
};

}  // namespace bz::bench
