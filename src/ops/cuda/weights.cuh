// How weights become floats in registers, per GGUF type.
//
// K is walked in units of eight elements. Unit u is quarter j = u % 4 of the run of 32 elements that starts at
// 32 * (u / 4): elements 4j .. 4j+3 and 16+4j .. 16+4j+3 of the run. That is one 32-bit word of a 4-bit block (its low
// nibbles, then its high ones); the plain types follow the same map, so that one staging of x serves all.
#pragma once

#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

inline constexpr int kUnit = 8;
inline constexpr int kUnitsPerRun = 4;

// First element of a unit's first half; the second half is 16 further.
__device__ inline int unit_element(int unit) { return unit / kUnitsPerRun * 32 + unit % kUnitsPerRun * 4; }

// Bytes of a row of k weights. dtype_info is for the host: its name traps on the device, so it is asked at compile
// time.
template <DType T>
__device__ inline int64_t weight_row_bytes(int32_t k) {
  constexpr int32_t kElems = dtype_info(T).block_elems;
  constexpr int32_t kBytes = dtype_info(T).block_bytes;
  return static_cast<int64_t>(k / kElems) * kBytes;
}

// Two bytes at a time: blocks of 18 and 34 bytes are aligned to no more.
__device__ inline uint32_t load_u16(const std::byte* p) { return __ldg(reinterpret_cast<const uint16_t*>(p)); }
__device__ inline uint32_t load_u32_by_halves(const std::byte* p) { return load_u16(p) | load_u16(p + 2) << 16; }
__device__ inline float half_bits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// An unsigned integer below 2^23 as a float, without the slow conversion unit.
__device__ inline float small_uint(uint32_t q) { return __uint_as_float(0x4B000000u | q) - 8388608.0f; }

template <DType T>
struct UnitCodec;

__device__ inline void decode_nibbles(uint32_t q, float d, float base, float* w) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    w[i] = fmaf(d, small_uint(q >> (8 * i) & 15u), base);
    w[4 + i] = fmaf(d, small_uint(q >> (8 * i + 4) & 15u), base);
  }
}

template <>
struct UnitCodec<DType::kQ4_1> {
  struct Raw {
    uint32_t dm, q;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 20;
    return {__ldg(reinterpret_cast<const uint32_t*>(block)),
            __ldg(reinterpret_cast<const uint32_t*>(block + 4 + unit % kUnitsPerRun * 4))};
  }
  __device__ static void decode(const Raw& r, float* w) {
    decode_nibbles(r.q, half_bits(r.dm & 0xffffu), half_bits(r.dm >> 16), w);
  }
};

template <>
struct UnitCodec<DType::kQ4_0> {
  struct Raw {
    uint32_t d, q;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 18;
    return {load_u16(block), load_u32_by_halves(block + 2 + unit % kUnitsPerRun * 4)};
  }
  __device__ static void decode(const Raw& r, float* w) {
    const float d = half_bits(r.d);
    decode_nibbles(r.q, d, -8.0f * d, w);
  }
};

template <>
struct UnitCodec<DType::kQ8_0> {
  struct Raw {
    uint32_t d, low, high;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 34;
    const std::byte* q = block + 2 + unit % kUnitsPerRun * 4;
    return {load_u16(block), load_u32_by_halves(q), load_u32_by_halves(q + 16)};
  }
  __device__ static void decode(const Raw& r, float* w) {
    const float d = half_bits(r.d);
    const uint32_t low = r.low ^ 0x80808080u, high = r.high ^ 0x80808080u;  // q + 128
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = d * (small_uint(low >> (8 * i) & 255u) - 128.0f);
      w[4 + i] = d * (small_uint(high >> (8 * i) & 255u) - 128.0f);
    }
  }
};

template <>
struct UnitCodec<DType::kBF16> {
  struct Raw {
    uint2 low, high;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* p = row + unit_element(unit) * 2;
    return {__ldg(reinterpret_cast<const uint2*>(p)), __ldg(reinterpret_cast<const uint2*>(p + 32))};
  }
  __device__ static void decode(const Raw& r, float* w) {
    const uint32_t words[4] = {r.low.x, r.low.y, r.high.x, r.high.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = __uint_as_float(words[i] << 16);
      w[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};

template <>
struct UnitCodec<DType::kF16> {
  struct Raw {
    uint2 low, high;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* p = row + unit_element(unit) * 2;
    return {__ldg(reinterpret_cast<const uint2*>(p)), __ldg(reinterpret_cast<const uint2*>(p + 32))};
  }
  __device__ static void decode(const Raw& r, float* w) {
    const uint32_t words[4] = {r.low.x, r.low.y, r.high.x, r.high.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = half_bits(words[i] & 0xffffu);
      w[2 * i + 1] = half_bits(words[i] >> 16);
    }
  }
};

template <>
struct UnitCodec<DType::kF32> {
  struct Raw {
    float4 low, high;
  };
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* p = row + unit_element(unit) * 4;
    return {__ldg(reinterpret_cast<const float4*>(p)), __ldg(reinterpret_cast<const float4*>(p + 64))};
  }
  __device__ static void decode(const Raw& r, float* w) {
    w[0] = r.low.x, w[1] = r.low.y, w[2] = r.low.z, w[3] = r.low.w;
    w[4] = r.high.x, w[5] = r.high.y, w[6] = r.high.z, w[7] = r.high.w;
  }
};

}  // namespace bz::ops::cuda
