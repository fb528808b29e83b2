// What the decode kernels share (attention_few.cuh, attention_many.cuh): one token and a unit of its heads, up to
// Tile::kHeads query heads of one KV head.
//
// Each warp that works on it keeps a running softmax of the runs of positions dealt to it (attention_walk.cuh), in a
// Tile: attention_mma.cuh on the tensor cores, attention_scalar.cuh without. A null block is skipped, never read
// (PAD-7).
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/attention_merge.cuh"
#include "ops/cuda/attention_walk.cuh"

namespace bz::ops::cuda {

template <class Tile>
class AttentionUnit {
 public:
  static constexpr int kHd = Tile::kHd, kHeads = Tile::kHeads;
  using Partial = AttentionPartial<kHd, kHeads>;
  static_assert(Tile::kWarpBytes % 256 == 0 && Tile::kWarpBytes >= sizeof(Partial));

  int num_heads;
  float* out;  // [num_heads][kHd]

  __device__ AttentionUnit(const AttentionParams& p, int token, int unit) : p_(p) {
    const int heads_per_kv = p.num_heads / p.layer.num_kv_heads, chunks = (heads_per_kv + kHeads - 1) / kHeads;
    const int first_in_kv = unit % chunks * kHeads;
    kv_head_ = unit / chunks;
    num_heads = min(kHeads, heads_per_kv - first_in_kv);
    const int first = (kv_head_ * heads_per_kv + first_in_kv) * kHd;
    q_ = p.q.row<float>(token) + first;
    out = p.out.row<float>(token) + first;
  }

  // Of stores to out: the next op reads it, and the next layer overwrites it.
  __device__ uint64_t policy() const { return kept_policy(int64_t{p_.out.rows} * p_.out.cols * 4); }

  // This warp's part of what the token sees: its result lies in its Partial after it. ready(): called once, when
  // everything before this kernel has finished. memory: the cta's, kWarpBytes a warp.
  template <class Ready>
  __device__ void attend(const Visible& sees, std::byte* memory, int part, int num_parts, Ready ready) const {
    RunWalk<Tile::kRun> walk(p_, sees, kv_head_ * kHd * Tile::kElementBytes, part, num_parts);
    Tile tile;
    tile.attend(p_, walk, q_, num_heads, mine(memory), ready);
    __syncwarp();
    tile.store(*reinterpret_cast<Partial*>(mine(memory)), num_heads);
  }
  // The outputs, after one warp alone attended; it may attend to another unit then.
  __device__ void store(std::byte* memory) const {
    __syncwarp();
    const uint64_t kept = policy();
    const auto& partial = *reinterpret_cast<const Partial*>(mine(memory));
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < num_heads * kHd; i += kWarp) {
      cuda::store(out + i, quotient(partial.out[i / kHd][i % kHd], partial.sum[i / kHd]), kept);
    }
    __syncwarp();
  }

 private:
  __device__ static std::byte* mine(std::byte* memory) {
    return memory + static_cast<int>(threadIdx.x) / kWarp * Tile::kWarpBytes;
  }

  const AttentionParams& p_;
  int kv_head_;
  const float* q_;
};

// Units of a token.
template <class Tile>
int attention_units(const AttentionParams& p) {
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
  return p.layer.num_kv_heads * ((heads_per_kv + Tile::kHeads - 1) / Tile::kHeads);
}

}  // namespace bz::ops::cuda
