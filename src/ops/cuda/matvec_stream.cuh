// Matrix times a few vectors, the weights streamed through shared memory: long rows, for which registers cannot hold
// enough reads on their way.
//
// One warp computes a pair of weight rows for up to TOK tokens, as in matvec.cuh and with the same order of sums. Its
// weights come in chunks of kChunkElems elements of both rows, by bulk copies (bulk_copy.cuh) into a ring of its own:
// while one chunk is multiplied, the others of this pair and of the warp's next pairs are on their way. Weights depend
// on nothing, so a cta fills its ring as soon as the multiprocessor has room for it, before it waits for the kernel
// before it. There is one cta on a multiprocessor and it takes all the shared memory: so the ctas of the next kernel
// come one by one, where those of this one have ended, and the memory stays busy meanwhile.
#pragma once

#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/matvec.cuh"

namespace bz::ops::cuda {

inline constexpr int kChunkUnits = kChunkElems / kUnit;
inline constexpr int kLoadsOfX = 16;  // of a thread, at once: rows of 16,384 elements by eight warps

// A warp's chunks on their way, in the order in which it multiplies them: [stages][2 rows][chunk].
template <DType W, Epilogue E>
class WeightRing {
 public:
  static constexpr int kRowBytes = weight_row_bytes<W>(kChunkElems);
  static constexpr int kStageBytes = 2 * kRowBytes;

  // memory: num_stages * kStageBytes, barriers: [num_stages], this warp's. num_stages <= kWarp.
  __device__ WeightRing(const LinearParams& p, int first_pair, int stride, int num_stages, std::byte* memory,
                        uint64_t* barriers)
      : p_(p),
        stride_(stride),
        num_chunks_((p.k + kChunkElems - 1) / kChunkElems),
        num_stages_(num_stages),
        memory_(memory),
        barriers_(barriers) {
    if (lane() < num_stages) {
      barrier_init(barriers + lane());
      barriers_are_ready();
    }
    __syncwarp();
    begin_pair(first_pair);
  }

  // Sends for the next chunks into stages [begin, end), each by a lane of its own. Before anything is taken.
  __device__ void fill(int begin, int end) {
    const int pair = pair_, chunk = chunk_, n = lane() - begin;
    if (lane() >= begin && lane() < end) {
      seek(pair, chunk + n);
      if (pair_ < p_.num_pairs) send(lane());
    }
    __syncwarp();
    seek(pair, chunk + end - begin);
  }

  // The chunk in turn, once it is there: rows 0 and 1, kRowBytes apart. All lanes.
  __device__ const std::byte* take() const {
    barrier_wait(barriers_ + stage_, phase_);
    return memory_ + stage_ * kStageBytes;
  }
  // It has been read: another one comes in its place. All lanes.
  __device__ void release() {
    __syncwarp();
    if (pair_ < p_.num_pairs) {
      if (lane() == 0) send(stage_);
      if (++chunk_ == num_chunks_) begin_pair(pair_ + stride_);
    }
    if (++stage_ < num_stages_) return;
    stage_ = 0;
    phase_ ^= 1;
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  // The next one to send for is chunk n, counted from the beginning of a pair.
  __device__ void seek(int pair, int n) {
    begin_pair(pair + n / num_chunks_ * stride_);
    chunk_ = n % num_chunks_;
  }
  __device__ void begin_pair(int pair) {
    pair_ = pair;
    chunk_ = 0;
    if (pair >= p_.num_pairs) return;
    const RowPair rows = pair_rows<E>(p_, pair);
    const int64_t row_size = weight_row_bytes<W>(p_.k);
    row0_ = p_.parts[rows.part].weight + rows.row0 * row_size;
    row1_ = p_.parts[rows.part1].weight + max(rows.row1, 0) * row_size;
  }
  // One lane.
  __device__ void send(int stage) const {
    const auto bytes = static_cast<uint32_t>(weight_row_bytes<W>(min(kChunkElems, p_.k - chunk_ * kChunkElems)));
    std::byte* to = memory_ + stage * kStageBytes;
    barrier_expect(barriers_ + stage, 2 * bytes);
    copy_async(to, row0_ + chunk_ * kRowBytes, bytes, barriers_ + stage);
    copy_async(to + kRowBytes, row1_ + chunk_ * kRowBytes, bytes, barriers_ + stage);
  }

  const LinearParams& p_;
  const int stride_, num_chunks_, num_stages_;
  std::byte* memory_;
  uint64_t* barriers_;
  int pair_, chunk_;                                   // the next one to send for
  const std::byte *row0_ = nullptr, *row1_ = nullptr;  // of pair_
  int stage_ = 0;                                      // the next one to take
  uint32_t phase_ = 0;
};

template <DType W, int TOK>
__device__ inline void compute_chunk(const LinearParams& p, int chunk, const std::byte* rows, int row_bytes,
                                     const float* x, float (&sum)[2][TOK]) {
  const int num_units = p.k / kUnit - chunk * kChunkUnits, lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto add = [&](int unit) {
    float w0[kUnit], w1[kUnit];
    UnitCodec<W>::decode(UnitCodec<W>::template load<SharedMemory>(rows, unit), w0);
    UnitCodec<W>::decode(UnitCodec<W>::template load<SharedMemory>(rows + row_bytes, unit), w1);
    add_unit<TOK>(p, chunk * kChunkUnits + unit, w0, w1, x, sum);
  };
  if (num_units >= kChunkUnits) {  // nearly always; without conditions the loads run ahead
#pragma unroll
    for (int unit = 0; unit < kChunkUnits; unit += kWarp) add(unit + lane);
  } else {
#pragma unroll 1
    for (int unit = lane; unit < num_units; unit += kWarp) add(unit);
  }
}

// Shared: x [TOK][2][k / 2] floats, the rings of all warps, their barriers.
template <DType W, Epilogue E, int TOK, int WARPS>
__global__ void __launch_bounds__(WARPS* kWarp)
    matvec_stream_kernel(const __grid_constant__ LinearParams p, const int num_stages) {
  using Ring = WeightRing<W, E>;
  extern __shared__ float x[];
  __shared__ float scale[TOK];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int num_chunks = (p.k + kChunkElems - 1) / kChunkElems;
  const int stride = static_cast<int>(gridDim.x) * WARPS;
  auto* rings = reinterpret_cast<std::byte*>(x + TOK * p.k);
  auto* barriers = reinterpret_cast<uint64_t*>(rings + WARPS * num_stages * Ring::kStageBytes);
  int pair = static_cast<int>(blockIdx.x) * WARPS + warp;
  Ring ring(p, pair, stride, num_stages, rings + warp * num_stages * Ring::kStageBytes, barriers + warp * num_stages);
  // Not all of the ring: the loads of x would stand behind it.
  const int num_early = (num_stages * 2 + 2) / 3;
  ring.fill(0, num_early);
  let_next_start();
  prefetch_norm(p);
  wait_for_previous();
  const int num_valid = p.num_valid.get();
  const int first_token = static_cast<int>(blockIdx.y) * TOK;
  stage_x<W, TOK, WARPS, kLoadsOfX / TOK>(p, first_token, num_valid, x, scale,
                                          [&] { ring.fill(num_early, num_stages); });

#pragma unroll 1
  for (; pair < p.num_pairs; pair += stride) {
    const RowPair rows = pair_rows<E>(p, pair);
    PairInputs<E> in;
    if (lane < TOK && first_token + lane < p.tokens) in.load(p, rows, first_token + lane, num_valid);
    float sum[2][TOK] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      compute_chunk<W, TOK>(p, chunk, ring.take(), Ring::kRowBytes, x, sum);
      ring.release();
    }
    float y0 = 0, y1 = 0;  // of token `lane`
    sum_over_lanes<TOK>(sum, y0, y1);
    if (lane < TOK && first_token + lane < p.tokens) {
      const float factor = p.norm_weight != nullptr ? scale[lane] : 1.0f;
      finish_pair<E>(p, rows, in, first_token + lane, num_valid, y0 * factor, y1 * factor);
    }
  }
}

template <DType W>
void launch_matvec_stream(device::Stream& stream, const char* op, const LinearParams& p, const StreamConfig& config) {
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(config.num_ctas),
                static_cast<unsigned>((p.tokens + config.tokens_per_cta - 1) / config.tokens_per_cta)};
  shape.cta = static_cast<unsigned>(config.warps * kWarp);
  shape.shared_bytes = static_cast<size_t>(config.shared_bytes);
  dispatch_epilogue(p.epilogue, [&](auto e) {
    constexpr Epilogue E = decltype(e)::value;
    const auto with = [&](auto kernel) { launch(stream, op, kernel, shape, p, config.num_stages); };
    switch (config.tokens_per_cta) {
      case 1:
        return config.warps == 8 ? with(matvec_stream_kernel<W, E, 1, 8>) : with(matvec_stream_kernel<W, E, 1, 4>);
      case 2: return with(matvec_stream_kernel<W, E, 2, 8>);
      default: return with(matvec_stream_kernel<W, E, 4, 8>);
    }
  });
}

}  // namespace bz::ops::cuda
