// One vector as bytes, for products with quantised weights on the integer tensor cores.
//
// The vector is rounded to 16 bits, with a scale of its own every 32 elements (the run of a Q8_0 block), and cut in two
// bytes, high and low. A weight is an integer too. So sums over a run are exact, and the result is that of f32 sums but
// for the vector's rounding, 2^-16 of the run's largest element.
//
// mma.m16n8k32 (PTX ISA): lane = 4 * g + t holds rows g and g + 8 of A, elements 4t .. 4t+3 and 16+4t .. 16+4t+3 of a
// run. Of B's eight columns two are one run's high and low
// bytes: four runs go through four products into one accumulator, and lane t ends with the sums of run t.
#pragma once

#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

inline constexpr int kRunElements = 32;

// In shared memory.
struct QuantizedVector {
  int8_t* bytes;  // [runs][high, low][32]
  float* scales;  // [runs] what an integer counts
};

__device__ inline QuantizedVector quantized_at(std::byte* memory, int runs) {
  return {reinterpret_cast<int8_t*>(memory), reinterpret_cast<float*>(memory + runs * 2 * kRunElements)};
}

// Quantises x * weight, x f32 in shared memory. Returns this thread's part of the sum of x squared:
// nonzero in lane 0 of each warp. No barrier.
template <int WARPS>
__device__ inline float quantize(const float* x, const float* weight, int runs, const QuantizedVector& out) {
  constexpr float kLargest = 127 * 256 + 127;  // of high * 256 + low, both in [-128, 127]
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float squares = 0;
  for (int run = static_cast<int>(threadIdx.x) / 32; run < runs; run += WARPS) {
    float v = x[run * kRunElements + lane];
    squares = fmaf(v, v, squares);
    v *= __ldg(weight + run * kRunElements + lane);
    float largest = fabsf(v);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const int q = largest > 0 ? __float2int_rn(v * (kLargest / largest)) : 0;
    const int high = (q + 128) >> 8;
    out.bytes[run * 2 * kRunElements + lane] = static_cast<int8_t>(high);
    out.bytes[run * 2 * kRunElements + kRunElements + lane] = static_cast<int8_t>(q - high * 256);
    if (lane == 0) out.scales[run] = largest / kLargest;
  }
  return warp_sum(squares);
}

__device__ inline void mma_s8s8(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// B of four products, one a run: this lane's column is run first + g / 2, its high bytes where g is even, its low ones
// where odd; in the products of other runs it is zero.
struct BytesOfRuns {
  uint32_t first_half = 0, second_half = 0;
  int mine;

  __device__ BytesOfRuns(const QuantizedVector& x, int first, int runs) {
    const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    mine = g / 2;
    if (first + mine >= runs) return;
    const int8_t* column = x.bytes + ((first + mine) * 2 + g % 2) * kRunElements + 4 * t;
    first_half = *reinterpret_cast<const uint32_t*>(column);
    second_half = *reinterpret_cast<const uint32_t*>(column + 16);
  }
  __device__ uint32_t first_of(int i) const { return i == mine ? first_half : 0; }
  __device__ uint32_t second_of(int i) const { return i == mine ? second_half : 0; }
};

// Over the four lanes of a row.
__device__ inline float2 sum_of_lanes(float2 y) {
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    y.x += __shfl_xor_sync(0xffffffffu, y.x, offset);
    y.y += __shfl_xor_sync(0xffffffffu, y.y, offset);
  }
  return y;
}

// Of RMSNorm, from the warps' sums of squares.
template <int WARPS>
__device__ inline float norm_factor(const float* squares, int n, float eps) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) sum += squares[i];
  return rsqrtf(sum / static_cast<float>(n) + eps);
}

__device__ inline uint32_t word_at(const std::byte* p) { return *reinterpret_cast<const uint32_t*>(p); }

}  // namespace bz::ops::cuda
