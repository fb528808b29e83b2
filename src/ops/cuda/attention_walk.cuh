// How attention finds its way: a row's positions in runs, cut at block borders, dealt out to warps.
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {

// Some consecutive positions inside one block, of one KV head. Position i of the run is at k + i * entry_bytes.
struct KvRun {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  int begin = 0, end = 0;  // those that count: [begin, end); the others are not read (PAD-7)
  bool fresh = false;      // some of them are written by this step
};

// One warp's runs of a row: of RUN positions at most, run, run + stride, ... A split at absolute positions: which warp
// takes a run depends on the run and the number of warps alone (PAD-9b). A run in a null block is empty (PAD-7).
//
// Lane l looks up the warp's runs l, l + 32, ..., so the block table is read once every 32 runs. All lanes call
// everything together.
template <int RUN>
class RunWalk {
 public:
  // REQUIRES: of a live token. head_offset: bytes of the KV head inside an entry.
  __device__ RunWalk(const AttentionParams& p, const Visible& sees, int head_offset, int warp, int num_warps)
      : group_(p.view.groups[p.group].view),
        layer_(p.layer),
        sees_(sees),
        head_offset_(head_offset),
        stride_(num_warps) {
    runs_per_block_ = (group_.block_size + RUN - 1) / RUN;
    const int first = run_of(sees.begin), end = sees.end > sees.begin ? run_of(sees.end - 1) + 1 : first;
    first_ = first / num_warps * num_warps + warp;
    if (first_ < first) first_ += num_warps;
    count_ = first_ < end ? (end - first_ - 1) / num_warps + 1 : 0;
    look_up();
  }

  __device__ bool done() const { return taken_ >= count_; }

  // The run in turn; empty once done.
  __device__ KvRun take() {
    if (done()) return {};
    const int lane = taken_ % kWarp;
    KvRun run;
    run.k = reinterpret_cast<const std::byte*>(__shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(ahead_.k), lane));
    run.v = reinterpret_cast<const std::byte*>(__shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(ahead_.v), lane));
    const int packed = __shfl_sync(0xffffffffu, ahead_.begin | ahead_.end << 8 | int{ahead_.fresh} << 16, lane);
    run.begin = packed & 255, run.end = packed >> 8 & 255, run.fresh = packed >> 16 != 0;
    if (++taken_ % kWarp == 0) look_up();
    return run;
  }

 private:
  __device__ int run_of(int position) const {
    return position / group_.block_size * runs_per_block_ + position % group_.block_size / RUN;
  }

  // This lane's run of the next 32.
  __device__ void look_up() {
    const int i = taken_ + static_cast<int>(threadIdx.x) % kWarp;
    ahead_ = {};
    if (i >= count_) return;
    const int run = first_ + i * stride_, column = run / runs_per_block_, offset = run % runs_per_block_ * RUN;
    const kv::BlockId block = kv::block_at(group_, kv::RowId(sees_.table_row), column);
    if (kv::is_null(block)) return;
    const int position = column * group_.block_size + offset;
    ahead_.k = layer_.base + kv::page_offset(layer_.k, block).value() + offset * layer_.k.entry_bytes + head_offset_;
    ahead_.v = layer_.base + kv::page_offset(layer_.v, block).value() + offset * layer_.v.entry_bytes + head_offset_;
    ahead_.begin = max(sees_.begin - position, 0);
    ahead_.end = min(min(sees_.end - position, group_.block_size - offset), RUN);
    ahead_.fresh = position + ahead_.end > sees_.fresh;
  }

  const kv::GroupView& group_;
  const KvLayer& layer_;
  const Visible sees_;
  const int head_offset_, stride_;
  int runs_per_block_, first_, count_, taken_ = 0;
  KvRun ahead_;
};

}  // namespace bz::ops::cuda
