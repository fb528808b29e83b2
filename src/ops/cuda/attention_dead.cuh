// Zeros in the outputs of dead tokens (PAD-5), by warps that have other work as well: in chunks between their pieces of
// work. All at once they hold up the reading of the cache by three times their bytes.
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/l2_policy.cuh"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

class DeadOutputs {
 public:
  // Of `num_warps` warps this is number `warp`: it has every num_warps-th chunk.
  __device__ DeadOutputs(const AttentionParams& p, int num_dead, int warp, int num_warps)
      : p_(p), num_warps_(num_warps), next_(warp) {
    const int64_t bytes = int64_t{num_dead} * row_bytes();
    while (chunk_log2_ < kMaxChunkLog2 && bytes > int64_t{num_warps} << chunk_log2_) ++chunk_log2_;
    row_log2_ = max(32 - __clz(row_bytes() - 1) - chunk_log2_, 0);
    end_ = num_dead << row_log2_;
    look_up();
  }

  // A chunk. REQUIRES, as finish(): what came before this kernel has finished.
  __device__ void clear_some() {
    if (next_ >= end_) return;
    const int begin = (next_ & ((1 << row_log2_) - 1)) << chunk_log2_;
    const int end = min(begin + (1 << chunk_log2_), row_bytes());
    auto* row = reinterpret_cast<std::byte*>(p_.out.row<float>(token_));
    const uint64_t policy = kept_policy(int64_t{end_} << chunk_log2_);
    for (int i = begin + static_cast<int>(threadIdx.x) % kWarp * 16; i < end; i += kWarp * 16) {
      store(reinterpret_cast<float4*>(row + i), {}, policy);
    }
    next_ += num_warps_;
    look_up();
  }
  __device__ void finish() {
    while (next_ < end_) clear_some();
  }

 private:
  static constexpr int kMinChunkLog2 = 9, kMaxChunkLog2 = 12;  // a store of each lane; eight

  __device__ int row_bytes() const { return p_.out.cols * 4; }
  __device__ void look_up() {  // ahead of its chunk
    if (next_ >= end_) return;
    const AttentionToken* dead = p_.view.groups[p_.group].attention.tokens +
                                 int64_t{static_cast<int>(AttentionClass::kDead)} * p_.view.padded_tokens;
    token_ = __ldg(&dead[next_ >> row_log2_].token);
  }

  const AttentionParams& p_;
  const int num_warps_;
  // row_log2_: chunks of a row, some of them beyond its end so that a chunk is found by shifts.
  int chunk_log2_ = kMinChunkLog2, row_log2_, next_, end_, token_ = 0;
};

}  // namespace bz::ops::cuda
