// Copies of whole blocks ahead of a step (KV-4, KV-6), in pieces that the workers share.
#include <cstring>

#include "ops/cpu/kernels.h"

namespace bz::ops::cpu::reference {
namespace {

constexpr int64_t kPieceBytes = 64 << 10;

void copy_piece(const CopyBlocksParams& p, const kv::BlockCopy& c, int64_t offset) {
  const auto bytes = static_cast<size_t>(std::min(kPieceBytes, p.block_stride - offset));
  std::byte* to = p.base + c.to.value() * p.block_stride + offset;
  if (c.from == kv::kNullBlock) {
    std::memset(to, 0, bytes);  // nobody reads block 0, not even for its zeros
  } else {
    std::memcpy(to, p.base + c.from.value() * p.block_stride + offset, bytes);
  }
}

}  // namespace

void copy_blocks(const CopyBlocksParams& p, Worker& worker) {
  const uint64_t count = *p.step_count;
  const StagedSlot& slot = p.ring[count % PrepareParams::kRingSlots];
  const int64_t num_copies = slot.header->sequence == count + 1 ? slot.header->num_copies : 0;
  const int64_t pieces = (p.block_stride + kPieceBytes - 1) / kPieceBytes;
  worker.parallel_for(num_copies * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const kv::BlockCopy& c = slot.copies[i / pieces];
      BZ_CHECK(c.to != kv::kNullBlock);  // PAD-1
      BZ_CHECK_LT(static_cast<int64_t>(std::max(c.from.value(), c.to.value())), p.num_blocks);
      copy_piece(p, c, i % pieces * kPieceBytes);
    }
  });
}

}  // namespace bz::ops::cpu::reference
