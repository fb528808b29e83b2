// copy_blocks: whole slabs, zeros from the null block, nothing but the copies of the step that comes next (PAD-10).
#include "ops/cpu/ops_test_util.h"

namespace bz::ops::cpu::test {
namespace {

constexpr int64_t kStride = 128 << 10;  // several pieces
constexpr int32_t kBlocks = 9;

class CopyBlocks : public testing::Test {
 protected:
  CopyBlocks() : slabs_(static_cast<size_t>(kStride * kBlocks)) {
    for (int32_t b = 0; b < kBlocks; ++b) std::memset(block(b), 10 + b, kStride);
  }
  unsigned char* block(int32_t b) { return slabs_.data() + b * kStride; }
  // Runs the op of the step after `count` others, whose slot was staged as step `sequence`.
  void run(const std::vector<kv::BlockCopy>& copies, uint64_t count, uint64_t sequence, int threads = 2) {
    StagedHeader header{};
    header.sequence = sequence;
    header.num_copies = static_cast<int32_t>(copies.size());
    CopyBlocksParams p{};
    for (StagedSlot& slot : p.ring) slot.header = &empty_;
    p.ring[count % 3].header = &header;
    p.ring[count % 3].copies = copies.data();
    p.step_count = &count;
    p.base = reinterpret_cast<std::byte*>(slabs_.data());
    p.block_stride = kStride;
    p.num_blocks = kBlocks;
    run_op(reference_ops().copy_blocks, p, threads);
    slabs_.check("slabs");
  }
  void expect(int32_t b, int value) {
    for (int64_t i = 0; i < kStride; ++i) ASSERT_EQ(block(b)[i], value) << "block " << b << " byte " << i;
  }
  static kv::BlockCopy copy(uint32_t from, uint32_t to) { return {kv::BlockId(from), kv::BlockId(to)}; }

  StagedHeader empty_{};
  Guarded<unsigned char> slabs_;
};

TEST_F(CopyBlocks, CopiesWholeSlabsAndNothingElse) {
  run({copy(2, 5), copy(2, 8), copy(1, 4)}, 7, 8);
  const int want[] = {10, 11, 12, 13, 11, 12, 16, 17, 12};
  for (int32_t b = 0; b < kBlocks; ++b) expect(b, want[b]);
}

TEST_F(CopyBlocks, FromTheNullBlockComeZerosWhateverItHolds) {
  run({copy(0, 3)}, 4, 5);
  expect(3, 0);
  expect(0, 10);  // as poisoned
}

TEST_F(CopyBlocks, AnotherStepsSlotCopiesNothing) {
  run({copy(2, 5)}, 7, 7);
  run({copy(2, 5)}, 7, 9);
  expect(5, 15);
}

using CopyBlocksDeathTest = CopyBlocks;
TEST_F(CopyBlocksDeathTest, NothingIsCopiedIntoTheNullBlockOrPastTheLast) {  // PAD-1
  EXPECT_DEATH(run({copy(2, 0)}, 7, 8, 1), "kNullBlock");
  EXPECT_DEATH(run({copy(2, 9)}, 7, 8, 1), "num_blocks");
}

}  // namespace
}  // namespace bz::ops::cpu::test
