// Attention on the tensor cores, for caches of bf16 and f16.
//
//   scores^T [16 positions x 8 heads] = K [16 x hd] q^T [hd x 8]        out^T [hd x 8 heads] += V^T [hd x 16] p^T [16 x
//   8]
//
// Positions are the long side of the instruction, so that 8 heads fill it. Queries and weights are split into two terms
// of 16 bits, high and low: nothing but the cache itself is rounded to 16 bits. Reading the cache is what takes time:
// each warp has kStages pieces of 8 KiB on their way, into shared memory of its own, and waits for nobody.
#pragma once

#include "ops/cuda/attention_launch.cuh"
#include "ops/cuda/mma.cuh"

namespace bz::ops::cuda {

template <DType T, int HD>
struct MmaTile {
  static constexpr int kHd = HD;
  static constexpr int kHeads = 8;
  static constexpr int kRun = 16;
  static constexpr int kRuns = 128 / HD;  // of a stage
  static constexpr int kStages = 3;
  static constexpr int kElementBytes = 2;
  static constexpr int kRowBytes = HD * kElementBytes;
  static constexpr int kPlaneBytes = kRuns * kRun * kRowBytes;  // K, or V, of a stage
  static constexpr int kStageBytes = 2 * kPlaneBytes;
  static constexpr int kWarpBytes = kStages * kStageBytes + 256;  // and what counts of each stage's runs
  static constexpr int kSteps = HD / 16;  // of the inner dimension of the scores; tiles of out^T

  uint32_t query[2][kSteps][2];  // [high, low]: head g, dimensions 16 s + 2 t + {0, 1}, and + 8
  float scores[kRuns][4];        // positions g, g, g + 8, g + 8 of heads 2t, 2t + 1, 2t, 2t + 1; then weights
  float out[kSteps][4] = {};     // heads as in scores, of dimensions 16 s + {g, g, g + 8, g + 8}
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // heads 2t, 2t + 1; the sum over this lane's positions alone

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int g() { return lane() / 4; }
  __device__ static int t() { return lane() % 4; }

  // All runs of a walk. memory: kWarpBytes of shared memory, this warp's.
  template <class Ready>
  __device__ void attend(const AttentionParams& p, RunWalk<kRun>& walk, const float* q, int num_heads,
                         std::byte* memory, Ready ready) {
    // Before the kernel before this one has finished: lengths and tables are prepare's, and so is everything in the
    // cache but this step's own entries. So older entries are on their way while the queries are computed.
    const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
    auto* limits = reinterpret_cast<int2*>(memory + kStages * kStageBytes);  // [kStages][kRuns]
    bool waited = false;
    int issued = 0;
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      issued += walk.done() ? 0 : 1;
      fetch(p.layer, walk, base + stage * kStageBytes, limits + stage * kRuns, waited);
    }
    if (!waited) wait_for_previous();
    waited = true;
    let_next_start();
    ready();
    load_queries(q, num_heads, p.scale * kLog2e);
    int stage = 0;
#pragma unroll 1
    for (int done = 0; done < issued; ++done) {
      copies_wait<kStages - 1>();
      __syncwarp();
      const uint32_t at = base + stage * kStageBytes;
      score(at, limits + stage * kRuns);
      weigh();
      add_values(at + kPlaneBytes);
      __syncwarp();
      issued += walk.done() ? 0 : 1;
      fetch(p.layer, walk, at, limits + stage * kRuns, waited);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }

  // Sends for the walk's next runs: one group of copies. Before the first entry that this step writes, waits for it.
  // Rows of 16-byte units, unit u of row r at place u ^ r % 8: eight rows' units of one column lie in different banks.
  __device__ static void fetch(const KvLayer& layer, RunWalk<kRun>& walk, uint32_t stage, int2* limits, bool& waited) {
    constexpr int kUnits = kRowBytes / 16, kRowsAtOnce = kWarp / kUnits;  // 2 or 4: below, r % 8 and row0 share no bit
    if (walk.done()) return copies_commit();
    const int row0 = lane() / kUnits, unit = lane() % kUnits;
    const int k_entry = static_cast<int>(layer.k.entry_bytes), v_entry = static_cast<int>(layer.v.entry_bytes);
    const uint32_t to0 = stage + row0 * kRowBytes + (unit ^ row0) * 16;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const KvRun run = walk.take();
      if (run.fresh && !waited) {
        wait_for_previous();
        waited = true;
      }
      if (lane() == 0) limits[i] = {run.begin, run.end};
      const std::byte* k = run.k + (row0 * k_entry + unit * 16);
      const std::byte* v = run.v + (row0 * v_entry + unit * 16);
      const auto count = static_cast<unsigned>(run.end - run.begin);
#pragma unroll
      for (int r = 0; r < kRun; r += kRowsAtOnce) {
        const bool counts = static_cast<unsigned>(r + row0 - run.begin) < count;
        const uint32_t to = (to0 ^ (r % 8 * 16)) + (i * kRun + r) * kRowBytes;
        copy_async(to, k, counts);
        copy_async(to + kPlaneBytes, v, counts);
        k += kRowsAtOnce * k_entry, v += kRowsAtOnce * v_entry;
      }
    }
    copies_commit();
  }

  // q: [num_heads][HD]. Heads that are not there are zeros, and their results are left alone.
  __device__ void load_queries(const float* q, int num_heads, float scale) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 f{};
        if (g() < num_heads) f = *reinterpret_cast<const float2*>(q + g() * HD + 16 * s + 8 * half + 2 * t());
        split2<T>(f.x * scale, f.y * scale, query[0][s][half], query[1][s][half]);
      }
    }
  }

  // What does not count scores -inf.
  __device__ void score(uint32_t keys, const int2* limits) {
    const int row = lane() % 16;
    const uint32_t from = keys + row * kRowBytes + ((lane() / 16 ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      float s[4][4] = {};  // four chains: high and low terms, even and odd steps
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t k[4];
        ldmatrix(k, (from + i * kRun * kRowBytes) ^ (step * 32));
        mma_16816<T>(s[step % 2 * 2], k, query[0][step][0], query[0][step][1]);
        mma_16816<T>(s[step % 2 * 2 + 1], k, query[1][step][0], query[1][step][1]);
      }
      const int2 limit = limits[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int position = g() + k / 2 * 8;
        const bool counts = position >= limit.x && position < limit.y;
        scores[i][k] = counts ? (s[0][k] + s[2][k]) + (s[1][k] + s[3][k]) : -INFINITY;
      }
    }
  }

  // Scores become weights.
  __device__ void weigh() {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float m = max[k];
#pragma unroll
      for (int i = 0; i < kRuns; ++i) m = fmaxf(m, fmaxf(scores[i][k], scores[i][k + 2]));
#pragma unroll
      for (int offset = 4; offset < kWarp; offset *= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
      const float keep = rescale(max[k], m);
      max[k] = m;
      const float from = m == -INFINITY ? 0.0f : m;  // nothing yet: no -inf - -inf
      sum[k] *= keep;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) out[s][k] *= keep, out[s][k + 2] *= keep;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        scores[i][k] = fast_exp2(scores[i][k] - from);
        scores[i][k + 2] = fast_exp2(scores[i][k + 2] - from);
        sum[k] += scores[i][k] + scores[i][k + 2];
      }
    }
  }

  // out += values * weights. What was not read is zeros, and so are its weights.
  __device__ void add_values(uint32_t values) {
    const int row = lane() % 8 + lane() / 16 * 8;
    const uint32_t from = values + row * kRowBytes + ((lane() / 8 % 2 ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      uint32_t high[2], low[2];  // positions 2t + {0, 1}, and + 8, of head g
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        split2<T>(scores[i][2 * half], scores[i][2 * half + 1], high[half], low[half]);
        high[half] = transpose8x8(high[half]);
        low[half] = transpose8x8(low[half]);
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        uint32_t v[4];
        ldmatrix_transposed(v, (from + i * kRun * kRowBytes) ^ (s * 32));
        mma_16816<T>(out[s], v, high[0], high[1]);
        mma_16816<T>(out[s], v, low[0], low[1]);
      }
    }
  }

  __device__ void store(AttentionPartial<HD, kHeads>& to, int num_heads) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int offset = 4; offset < kWarp; offset *= 2) sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], offset);
      const int head = 2 * t() + k;
      if (head >= num_heads) continue;
      if (g() == 0) to.max[head] = max[k], to.sum[head] = sum[k];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        to.out[head][16 * s + g()] = out[s][k];
        to.out[head][16 * s + 8 + g()] = out[s][k + 2];
      }
    }
  }
};

}  // namespace bz::ops::cuda
