// decode_logits: the logits of one token from Q8_0 rows: gather, norm and product in one kernel that streams the
// weights through shared memory.
//
// A warp has tiles of 16 rows to itself, two on their way while it waits; the first are asked for before the kernel
// before this one has finished. The vector is cut in two bytes (byte_vector.cuh), so that sums over a block are exact
// integers.
#include <algorithm>

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/byte_vector.cuh"
#include "ops/cuda/checks.h"
#include "ops/cuda/decode_logits.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 2;
constexpr int kTileRows = 16;
constexpr int kBlockBytes = 34;

// A word of a row whose blocks lie at even addresses: `p` is a multiple of 4 where odd == 0, else two bytes past one.
__device__ inline uint32_t word_at_half(const std::byte* p, bool odd) {
  if (!odd) return word_at(p);
  return __byte_perm(word_at(p - 2), word_at(p + 2), 0x5432);
}
__device__ inline float half_at(const std::byte* p) { return __half2float(*reinterpret_cast<const __half*>(p)); }

// Rows row0 (g) and row1 (g + 8) of a tile over all runs; afterwards lanes with t == 0 hold the sums.
__device__ inline float2 tile_rows(const std::byte* row0, const std::byte* row1, int runs, const QuantizedVector& x) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  float2 y{0, 0};
  for (int first = 0; first < runs; first += 4) {
    const BytesOfRuns b(x, first, runs);
    int c[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i >= runs) break;
      const int at = (first + i) * kBlockBytes + 2 + 4 * t;
      const bool odd = (first + i) % 2 == 0;  // rows are multiples of 4 bytes: the integers of even blocks lie at 2
      mma_s8s8(c, word_at_half(row0 + at, odd), word_at_half(row1 + at, odd), word_at_half(row0 + at + 16, odd),
               word_at_half(row1 + at + 16, odd), b.first_of(i), b.second_of(i));
    }
    if (first + t < runs) {
      const float scale = x.scales[first + t];
      const int at = (first + t) * kBlockBytes;
      y.x = fmaf(half_at(row0 + at) * scale, fmaf(static_cast<float>(c[0]), 256.0f, static_cast<float>(c[1])), y.x);
      y.y = fmaf(half_at(row1 + at) * scale, fmaf(static_cast<float>(c[2]), 256.0f, static_cast<float>(c[3])), y.y);
    }
  }
  return sum_of_lanes(y);
}

struct LogitsMemory {
  int tile_bytes, x, quantized, total;
};
BZ_HD inline LogitsMemory logits_memory(int k) {
  LogitsMemory m{};
  m.tile_bytes = kTileRows * (k / kRunElements) * kBlockBytes;
  m.x = (kWarps * kStages * m.tile_bytes + 127) / 128 * 128;
  m.quantized = m.x + k * 4;
  m.total = m.quantized + k * 2 + k / kRunElements * 4;
  return m;
}

__global__ void __launch_bounds__(kThreads, 1) decode_logits_kernel(const __grid_constant__ NormLogitsParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ uint64_t barriers[kWarps][kStages];
  __shared__ float squares[kWarps];
  const int tid = static_cast<int>(threadIdx.x), warp = tid / kWarp, lane = tid % kWarp;
  const int runs = p.weight.k / kRunElements, row_size = runs * kBlockBytes;
  const LogitsMemory m = logits_memory(p.weight.k);
  const int num_tiles = p.weight.n / kTileRows;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const int first_tile = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const auto tile_memory = [&](int stage) { return memory + (warp * kStages + stage) * m.tile_bytes; };
  const auto fetch = [&](int tile, int stage) {  // by lane 0
    barrier_expect(&barriers[warp][stage], static_cast<uint32_t>(m.tile_bytes));
    copy_async(tile_memory(stage), p.weight.data + static_cast<int64_t>(tile) * kTileRows * row_size,
               static_cast<uint32_t>(m.tile_bytes), &barriers[warp][stage]);
  };
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) barrier_init(&barriers[warp][s]);
    barriers_are_ready();
    for (int s = 0; s < kStages; ++s) {
      if (first_tile + s * stride < num_tiles) fetch(first_tile + s * stride, s);
    }
  }
  wait_for_previous();
  let_next_start();
  const int token = p.num_valid.get() > 0 ? p.index[0] : -1;  // -1: nobody wants them: zeros
  auto* x = reinterpret_cast<float*>(memory + m.x);
  const float* source = p.x.row<float>(max(token, 0));
  for (int i = tid; i < p.weight.k; i += kThreads) x[i] = token >= 0 ? source[i] : 0.0f;
  __syncthreads();
  const QuantizedVector v = quantized_at(memory + m.quantized, runs);
  const float sum = quantize<kWarps>(x, p.norm_weight, runs, v);
  if (lane == 0) squares[warp] = sum;
  __syncthreads();
  const float factor = norm_factor<kWarps>(squares, p.weight.k, p.eps);
  auto* out = p.out.row<float>(0);
  int stage = 0;
  uint32_t parity = 0;
  for (int tile = first_tile; tile < num_tiles; tile += stride) {
    barrier_wait(&barriers[warp][stage], parity);
    const std::byte* rows = tile_memory(stage);
    const float2 y = tile_rows(rows + lane / 4 * row_size, rows + (lane / 4 + 8) * row_size, runs, v);
    if (lane % 4 == 0) {
      out[tile * kTileRows + lane / 4] = y.x * factor;
      out[tile * kTileRows + lane / 4 + 8] = y.y * factor;
    }
    __syncwarp();
    if (lane == 0 && tile + kStages * stride < num_tiles) fetch(tile + kStages * stride, stage);
    stage = (stage + 1) % kStages;
    if (stage == 0) parity ^= 1u;
  }
}

}  // namespace

// CudaStream::has_clusters(), without a stream. Asked once: a process runs on one kind of GPU.
static bool has_bulk_copies() {
  static const bool has = [] {
    int index = 0, major = 0, shared_bytes = 0;
    const bool known =
        cudaGetDevice(&index) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) == cudaSuccess &&
        cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index) == cudaSuccess;
    cudaGetLastError();
    return known && major >= 9 && shared_bytes >= device::cuda::kLargeSharedBytes;
  }();
  return has;
}

bool supports_decode_logits(const NormLogitsParams& p) {
  constexpr int kMaxSharedBytes = 226 * 1024;
  return has_bulk_copies() && p.out.rows == 1 && p.weight.dtype == DType::kQ8_0 && p.weight.n % kTileRows == 0 &&
         p.weight.k % kRunElements == 0 && row_bytes(DType::kQ8_0, p.weight.k) % 4 == 0 &&
         logits_memory(p.weight.k).total <= kMaxSharedBytes;
}

void decode_logits(device::Stream& stream, const NormLogitsParams& p) {
  check(p);
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(std::min(p.weight.n / kTileRows, limits_of(stream).num_sms));
  shape.cta = kThreads;
  shape.shared_bytes = static_cast<size_t>(logits_memory(p.weight.k).total);
  launch(stream, "decode_logits", decode_logits_kernel, shape, p);
}

}  // namespace bz::ops::cuda
