// How weights become floats in registers, per GGUF type.
//
// K is walked in units of eight elements, four of them to a run of 32. A unit is two quads of four elements: of the
// block types, quads j and j + 4 of the run, which is one 32-bit word of a 4-bit block (its low nibbles, then its high
// ones); of the plain types, quads 2j and 2j + 1, which lie side by side.
#pragma once

#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

inline constexpr int kUnit = 8;
inline constexpr int kUnitsPerRun = 4;

template <DType T>
inline constexpr bool kPlain = T == DType::kF32 || T == DType::kF16 || T == DType::kBF16;

// First element of a quad of a unit. half: 0 or 1.
template <DType T>
__device__ inline int unit_element(int unit, int half) {
  const int j = unit % kUnitsPerRun, quad = kPlain<T> ? 2 * j + half : j + 4 * half;
  return unit / kUnitsPerRun * 32 + quad * 4;
}
// The other way: which half of which unit is elements 4 * quad .. 4 * quad + 3.
template <DType T>
__device__ inline int quad_unit(int quad) {
  return quad / 8 * kUnitsPerRun + (kPlain<T> ? quad % 8 / 2 : quad % kUnitsPerRun);
}
template <DType T>
__device__ inline int quad_half(int quad) {
  return kPlain<T> ? quad % 2 : quad % 8 / 4;
}

// Bytes of a row of k weights. dtype_info is for the host: its name traps on the device, so it is asked at compile
// time.
template <DType T>
BZ_HD constexpr int64_t weight_row_bytes(int32_t k) {
  constexpr int32_t kElems = dtype_info(T).block_elems;
  constexpr int32_t kBytes = dtype_info(T).block_bytes;
  return static_cast<int64_t>(k / kElems) * kBytes;
}

// Where a row of weights lies.
struct GlobalMemory {
  template <class T>
  __device__ static T load(const std::byte* p) {
    return __ldg(reinterpret_cast<const T*>(p));
  }
};
struct SharedMemory {
  template <class T>
  __device__ static T load(const std::byte* p) {
    return *reinterpret_cast<const T*>(p);
  }
};

// Two bytes at a time: blocks of 18 and 34 bytes are aligned to no more.
template <class Memory>
__device__ inline uint32_t load_u16(const std::byte* p) {
  return Memory::template load<uint16_t>(p);
}
template <class Memory>
__device__ inline uint32_t load_u32_by_halves(const std::byte* p) {
  return load_u16<Memory>(p) | load_u16<Memory>(p + 2) << 16;
}
__device__ inline float half_bits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// An unsigned integer below 2^23 as a float, without the slow conversion unit.
__device__ inline float small_uint(uint32_t q) { return __uint_as_float(0x4B000000u | q) - 8388608.0f; }

template <DType T>
struct UnitCodec;  // load<Memory>(row, unit), decode(raw, w[kUnit])

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
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 20;
    return {Memory::template load<uint32_t>(block),
            Memory::template load<uint32_t>(block + 4 + unit % kUnitsPerRun * 4)};
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
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 18;
    return {load_u16<Memory>(block), load_u32_by_halves<Memory>(block + 2 + unit % kUnitsPerRun * 4)};
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
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* block = row + unit / kUnitsPerRun * 34;
    const std::byte* q = block + 2 + unit % kUnitsPerRun * 4;
    return {load_u16<Memory>(block), load_u32_by_halves<Memory>(q), load_u32_by_halves<Memory>(q + 16)};
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
  using Raw = uint4;
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    return Memory::template load<uint4>(row + unit * 16);
  }
  __device__ static void decode(const Raw& r, float* w) {
    const uint32_t words[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[2 * i] = __uint_as_float(words[i] << 16);
      w[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
};

template <>
struct UnitCodec<DType::kF16> {
  using Raw = uint4;
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    return Memory::template load<uint4>(row + unit * 16);
  }
  __device__ static void decode(const Raw& r, float* w) {
    const uint32_t words[4] = {r.x, r.y, r.z, r.w};
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
  template <class Memory = GlobalMemory>
  __device__ static Raw load(const std::byte* row, int unit) {
    const std::byte* p = row + unit * 32;
    return {Memory::template load<float4>(p), Memory::template load<float4>(p + 16)};
  }
  __device__ static void decode(const Raw& r, float* w) {
    w[0] = r.low.x, w[1] = r.low.y, w[2] = r.low.z, w[3] = r.low.w;
    w[4] = r.high.x, w[5] = r.high.y, w[6] = r.high.z, w[7] = r.high.w;
  }
};

}  // namespace bz::ops::cuda
