#include "calibration/compute.h"

#include <cstdint>

#include "calibration/team.h"

namespace bz::bench {
namespace {

// Enough independent sums to hide the latency of two pipes; all of them, and the operands, stay in registers.
constexpr int kAvx2Sums = 12;
constexpr int kAvx512Sums = 24;

// A loop of nothing but one instruction sequence over all the sums; \r is a sum's register number, 0 and 1 are the
// operands, 2 and 3 a constant and scratch. Whole in assembly: the compiler moves arrays of vectors through memory.
#define BZ_PEAK_LOOP(rounds, zero, registers, body)                                           \
  asm volatile(zero "1:\n.irp r," registers "\n" body "\n.endr\ndec %0\njnz 1b\nvzeroupper\n" \
               : "+r"(rounds)                                                                 \
               :                                                                              \
               : "cc", "memory", BZ_LOW_REGISTERS)
#define BZ_LOW_REGISTERS                                                                                              \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

// Zeros everywhere: no denormal and no NaN can slow a sum down.
#define BZ_AVX2_PEAK(name, body)                                                                                      \
  void name(int64_t rounds) {                                                                                         \
    BZ_PEAK_LOOP(rounds, ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvpxor %%xmm\\r, %%xmm\\r, %%xmm\\r\n.endr\n", \
                 "4,5,6,7,8,9,10,11,12,13,14,15", body);                                                              \
  }
// The high registers are not declared as clobbered: code for the baseline knows nothing of them.
#define BZ_AVX512_PEAK(name, body)                                                                                \
  void name(int64_t rounds) {                                                                                     \
    BZ_PEAK_LOOP(rounds,                                                                                          \
                 ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n" \
                 "vpxord %%zmm\\r, %%zmm\\r, %%zmm\\r\n.endr\n",                                                  \
                 "8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31", body);                  \
  }

BZ_AVX2_PEAK(f32_avx2, "vfmadd231ps %%ymm0, %%ymm1, %%ymm\\r")
BZ_AVX2_PEAK(int16_avx2, "vpmaddwd %%ymm0, %%ymm1, %%ymm3\nvpaddd %%ymm3, %%ymm\\r, %%ymm\\r")
BZ_AVX2_PEAK(int8_avx2,
             "vpmaddubsw %%ymm0, %%ymm1, %%ymm3\nvpmaddwd %%ymm2, %%ymm3, %%ymm3\nvpaddd %%ymm3, %%ymm\\r, %%ymm\\r")
BZ_AVX512_PEAK(f32_avx512, "vfmadd231ps %%zmm0, %%zmm1, %%zmm\\r")
BZ_AVX512_PEAK(int16_avx512, "vpdpwssd %%zmm0, %%zmm1, %%zmm\\r")
BZ_AVX512_PEAK(int8_avx512, "vpdpbusd %%zmm0, %%zmm1, %%zmm\\r")
BZ_AVX512_PEAK(bf16_avx512, "vdpbf16ps %%zmm0, %%zmm1, %%zmm\\r")

struct Sequence {
  ComputeRate label;
  double ops;  // per round of the loop
  void (*run)(int64_t rounds);
  bool available;
};

std::vector<Sequence> sequences() {
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool wide = __builtin_cpu_supports("avx512f");
  const bool vnni = wide && __builtin_cpu_supports("avx512vnni");
  const bool bf16 = wide && __builtin_cpu_supports("avx512bf16");
  return {
      {{"f32", "avx2", "vfmadd"}, 2.0 * 8 * kAvx2Sums, f32_avx2, fma},
      {{"int16", "avx2", "vpmaddwd + vpaddd"}, 2.0 * 16 * kAvx2Sums, int16_avx2, fma},
      {{"int8", "avx2", "vpmaddubsw + vpmaddwd + vpaddd"}, 2.0 * 32 * kAvx2Sums, int8_avx2, fma},
      {{"f32", "avx512", "vfmadd"}, 2.0 * 16 * kAvx512Sums, f32_avx512, wide},
      {{"int16", "avx512-vnni", "vpdpwssd"}, 2.0 * 32 * kAvx512Sums, int16_avx512, vnni},
      {{"int8", "avx512-vnni", "vpdpbusd"}, 2.0 * 64 * kAvx512Sums, int8_avx512, vnni},
      {{"bf16", "avx512-bf16", "vdpbf16ps"}, 2.0 * 32 * kAvx512Sums, bf16_avx512, bf16},
  };
}

}  // namespace

std::vector<ComputeRate> measure_compute(int cores, bool quick) {
  const int64_t rounds = quick ? 200'000 : 1'000'000;
  std::vector<ComputeRate> rates;
  for (const Sequence& s : sequences()) {
    if (!s.available) continue;
    ComputeRate r = s.label;
    const double ops = s.ops * static_cast<double>(rounds);
    r.one = ops / best_seconds(1, 8, [&](int) { s.run(rounds); }) / 1e9;
    r.all = ops * cores / best_seconds(cores, 8, [&](int) { s.run(rounds); }) / 1e9;
    rates.push_back(r);
  }
  return rates;
}

}  // namespace bz::bench
