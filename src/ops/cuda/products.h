// Products of bf16 matrices by cuBLASLt, f32 sums:  out[n][m] = sum over k of b[n][k] * a[m][k].
//
// An algorithm is chosen for a shape once, by the library's heuristics, and kept: an eager step, a capture and a replay
// of one shape have the same bits. It is run once for that, which loads it, and captured once, which shows whether it
// is kernels alone (no memset node). No call here waits for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/cublas_lt.h"

namespace bz::ops::cuda {

struct ProductShape {
  int32_t m = 0;           // rows of a: weight rows
  int32_t n = 0;           // rows of b: tokens
  int32_t k = 0;           // of both, whose rows lie one behind the other
  int32_t out_stride = 0;  // elements

  auto operator<=>(const ProductShape&) const = default;
};

// All 16-byte aligned, the workspace to 256.
struct ProductOperands {
  const void* a = nullptr;    // bf16 [m, k]
  const void* b = nullptr;    // bf16 [n, k]
  float* out = nullptr;       // f32 [n, m]
  void* workspace = nullptr;  // kProductWorkspaceBytes
};
inline constexpr size_t kProductWorkspaceBytes = size_t{32} << 20;

class Products {
 public:
  // Of the device of `stream`, which all streams of the process share. nullptr: there is no library, or it cannot be
  // used.
  static Products* of(const device::cuda::CudaStream& stream);

  // Has the library an algorithm for this shape? The first time it looks for one and tries it: on `stream`, with what a
  // and b hold, into out and the workspace. A first time inside a capture is only captured.
  bool can(device::cuda::CudaStream& stream, const ProductShape& shape, const ProductOperands& operands);
  // REQUIRES: can(shape).
  void enqueue(device::cuda::CudaStream& stream, const char* op, const ProductShape& shape,
               const ProductOperands& operands);

  // Shapes asked for so far.
  size_t num_shapes() const;

  Products(const CublasLt& lt, cublasLtHandle_t handle, int device_index);

 private:
  struct Plan {
    MatrixLayout a, b, out;
    cublasLtMatmulAlgo_t algorithm;
  };

  std::optional<Plan> choose(const device::cuda::CudaStream& stream, const ProductShape& shape,
                             const ProductOperands& operands) const;
  bool runs(const Plan& plan, const ProductOperands& operands, const device::cuda::CudaStream& stream) const;
  bool is_kernels_alone(const Plan& plan, const ProductOperands& operands) const;
  cublasStatus_t multiply(const Plan& plan, const ProductOperands& operands, cudaStream_t stream) const;

  const CublasLt& lt_;
  cublasLtHandle_t handle_;
  int device_index_;
  cudaStream_t trial_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  mutable std::mutex mutex_;
  bool said_ = false;
  std::map<ProductShape, std::optional<Plan>> plans_;
};

}  // namespace bz::ops::cuda
