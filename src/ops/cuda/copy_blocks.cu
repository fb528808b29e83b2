// Copies of whole blocks ahead of a step (KV-4, KV-6): every cta takes 16-byte words in turn, over all copies. As
// ops/cpu/copy_blocks.cc.
#include "ops/cuda/checks.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace bz::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr unsigned kCtas = 256;  // the number of copies is known on the device alone

__global__ void __launch_bounds__(kThreads) copy_blocks_kernel(const __grid_constant__ CopyBlocksParams p) {
  wait_for_previous();
  const uint64_t count = *p.step_count;
  const StagedSlot& slot = p.ring[count % PrepareParams::kRingSlots];
  if (slot.header->sequence != count + 1) return;
  const int num_copies = slot.header->num_copies;
  const int64_t words = p.block_stride / static_cast<int64_t>(sizeof(uint4));
  for (int i = 0; i < num_copies; ++i) {
    const kv::BlockCopy c = slot.copies[i];
    const auto limit = static_cast<uint32_t>(p.num_blocks);
    if (c.to == kv::kNullBlock || c.to.value() >= limit || c.from.value() >= limit) __trap();  // PAD-1
    const auto* from = reinterpret_cast<const uint4*>(p.base + c.from.value() * p.block_stride);
    auto* to = reinterpret_cast<uint4*>(p.base + c.to.value() * p.block_stride);
    for (int64_t w = int64_t{blockIdx.x} * kThreads + threadIdx.x; w < words; w += int64_t{kCtas} * kThreads) {
      to[w] = c.from == kv::kNullBlock ? uint4{0, 0, 0, 0} : from[w];  // nobody reads block 0, not even for its zeros
    }
  }
}

}  // namespace

void copy_blocks(device::Stream& stream, const CopyBlocksParams& p) {
  check(p);
  launch(stream, "copy_blocks", copy_blocks_kernel, {.grid = kCtas, .cta = kThreads, .overlap = false}, p);
}

}  // namespace bz::ops::cuda
