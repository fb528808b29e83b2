// The instructions of the tensor cores and of what feeds them, for 16-bit types. Lane l holds parts g = l / 4, t = l %
// 4 of a fragment, as the PTX manual lays them out (mma.m16n8k16, ldmatrix).
#pragma once

#include "ops/cuda/device.cuh"

namespace bz::ops::cuda {

// Two floats as one register of type T, x in the low half; and back.
template <DType T>
__device__ inline uint32_t pack2(float x, float y) {
  if constexpr (T == DType::kBF16) {
    const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const uint32_t&>(h);
  } else {
    const __half2 h = __floats2half2_rn(x, y);
    return reinterpret_cast<const uint32_t&>(h);
  }
}
template <DType T>
__device__ inline float2 unpack2(uint32_t r) {
  if constexpr (T == DType::kBF16) {
    return {__uint_as_float(r << 16), __uint_as_float(r & 0xffff0000u)};
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(r));
  }
}
// x and y as a high term and the rest.
template <DType T>
__device__ inline void split2(float x, float y, uint32_t& high, uint32_t& low) {
  high = pack2<T>(x, y);
  const float2 h = unpack2<T>(high);
  low = pack2<T>(x - h.x, y - h.y);
}

// c[16 x 8] += a[16 x 16] b[16 x 8].
template <DType T>
__device__ inline void mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (T == DType::kBF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Four 8x8 matrices, whose rows are the 16 bytes at the addresses of lanes 0-7, 8-15, 16-23, 24-31; as they are, and
// each transposed.
__device__ inline void ldmatrix(uint32_t (&r)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}
__device__ inline void ldmatrix_transposed(uint32_t (&r)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}
// An 8x8 matrix, transposed across the warp.
__device__ inline uint32_t transpose8x8(uint32_t r) {
  uint32_t t;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(r));
  return t;
}

// 16 bytes from memory into shared memory on their own, past L1; zeros, and nothing read, unless `counts`.
__device__ inline void copy_async(uint32_t shared_address, const std::byte* from, bool counts) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(from),
               "r"(counts ? 16 : 0)
               : "memory");
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups of copies but the last N have arrived (this thread's).
template <int N>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace bz::ops::cuda
