// Helpers of the op tests: guard bands, random data, and running an op on a pool of any size.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "device/cpu/cpu_stream.h"
#include "ops/cpu/cpu_ops.h"

namespace bz::ops::cpu::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// n elements between two sentinels. check() fails if something was written beside them.
template <class T>
class Guarded {
 public:
  Guarded() = default;
  // `shift` bytes off the allocation's alignment, as rows of a model file are.
  explicit Guarded(size_t n, T value = T{}, size_t shift = 0)
      : n_(n), shift_(shift), bytes_(2 * kBand + shift + n * sizeof(T), kSentinel) {
    fill(address(0), n, value);
  }
  T* data() { return reinterpret_cast<T*>(address(0)); }
  const T* data() const { return const_cast<Guarded*>(this)->data(); }
  size_t size() const { return n_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }

  void check(const char* name) const {
    const unsigned char* p = bytes_.data();
    const size_t end = kBand + shift_ + n_ * sizeof(T);
    for (size_t i = 0; i < kBand + shift_; ++i) ASSERT_EQ(p[i], kSentinel) << name << ": written before its start";
    for (size_t i = end; i < bytes_.size(); ++i) ASSERT_EQ(p[i], kSentinel) << name << ": written past its end";
  }

 private:
  static constexpr size_t kBand = 256;
  static constexpr unsigned char kSentinel = 0xA5;
  [[gnu::noinline]] static void fill(unsigned char* p, size_t n, T value) {
    for (size_t i = 0; i < n; ++i) std::memcpy(p + i * sizeof(T), &value, sizeof(T));
  }
  unsigned char* address(size_t i) { return bytes_.data() + kBand + shift_ + i * sizeof(T); }
  size_t n_ = 0;
  size_t shift_ = 0;
  std::vector<unsigned char> bytes_;
};

using Floats = Guarded<float>;

inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(rng);
  return v;
}
inline void copy_in(Floats& dst, const std::vector<float>& src) {
  if (src.empty()) return;
  std::memcpy(dst.data(), src.data(), src.size() * sizeof(float));
}

// Bitwise: NaNs compare too.
inline bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

// sqrt(sum (a - b)^2 / sum b^2)
inline double relative_rms(const float* a, const float* b, size_t n) {
  double num = 0, den = 0;
  for (size_t i = 0; i < n; ++i) {
    num += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    den += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(num / std::max(den, 1e-60));
}

// Pools are slow to make on a busy machine: one of each size for the whole program.
inline device::cpu::ThreadPool& pool_of(int threads) {
  static std::unique_ptr<device::cpu::ThreadPool> pools[8];
  if (pools[threads] == nullptr) pools[threads] = std::make_unique<device::cpu::ThreadPool>(threads);
  return *pools[threads];
}

template <class Params>
void run_op(void (*op)(device::Stream&, const Params&), const Params& params, int threads = 1) {
  device::cpu::CpuStream stream(&pool_of(threads));
  op(stream, params);
}

inline const OpTable& reference_ops() { return *table_by_name("reference"); }

// The fast tables that this machine has.
inline std::vector<const OpTable*> fast_tables() {
  std::vector<const OpTable*> tables;
  for (const char* name : {"avx2", "avx512-vnni"}) {
    if (const OpTable* t = table_by_name(name)) tables.push_back(t);
  }
  return tables;
}
inline std::vector<const OpTable*> all_tables() {
  auto tables = fast_tables();
  tables.push_back(&reference_ops());
  return tables;
}

// How many of `rows` rows are real: none, one, some, all.
inline std::vector<int32_t> valid_counts(int32_t rows) {
  std::vector<int32_t> v = {0, 1, rows};
  if (rows > 2) v.push_back(rows - rows / 3 - 1);
  return v;
}

inline bool all_zero(const float* p, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (p[i] != 0.0f) return false;
  }
  return true;
}

}  // namespace bz::ops::cpu::test
