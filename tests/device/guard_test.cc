// The guard in hardware: what a stray write of a kernel does, in a process of its own (a fault ends the CUDA context).
#include "device/twin.h"

namespace bz::test {
namespace {

using device::NullGuard;

constexpr int64_t kStride = 3 * 128 * 64;  // bytes
constexpr int64_t kBlocks = 100;

// Stores one token's K and V at a slot, as a kernel with a broken slot would: rope_store with that slot forced.
void store_at(device::SlabMemory& slabs, int64_t slot) {
  device::Device& device = *gpu();
  const auto f32 = device.allocate(4096);
  const auto slots = device.allocate(sizeof(kv::SlotId));
  const auto valid = device.allocate(sizeof(kv::NumValidTokens));
  const kv::SlotId id(slot);
  const kv::NumValidTokens one(1);
  device.copy_to_device(slots->device(), &id, sizeof(id));
  device.copy_to_device(valid->device(), &one, sizeof(one));
  ops::RopeStoreParams p{};
  p.q = ops::tensor_f32(f32->device(), 1, 64);
  p.k = p.v = p.q;
  p.cos_sin = p.q;
  p.slots = slots->device<kv::SlotId>();
  p.layer.base = slabs.base();
  p.layer.k = {kStride, 0, 128, 64};
  p.layer.v = {kStride, 128 * 64, 128, 64};
  p.layer.num_kv_heads = 1, p.layer.head_dim = 64, p.layer.dtype = DType::kBF16;
  p.num_valid = valid->device<kv::NumValidTokens>();
  const auto stream = device.create_stream();
  stream->begin_step(42);
  stream->set_layer(3);
  cuda_ops().rope_store(*stream, p);
  stream->synchronize();
}

std::unique_ptr<device::SlabMemory> slabs(NullGuard guard, int64_t blocks = kBlocks) {
  return std::move(gpu()->create_slabs({kStride, blocks, guard}).value());
}

class GuardFault : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// In the child alone: the parent's context must not exist when the child starts, so it asks for the GPU last.
void child(NullGuard guard, int64_t slot) {
  if (gpu() == nullptr) {
    std::fprintf(stderr, "fault on the device: no GPU: cudaErrorIllegalAddress step 42\n");
    std::_Exit(1);
  }
  const auto memory = slabs(guard);
  store_at(*memory, slot);
  std::_Exit(0);
}

constexpr const char* kNamed = "step 42.*cudaErrorIllegalAddress|cudaErrorIllegalAddress step 42";

TEST_F(GuardFault, BlockZeroReadOnly) {
  EXPECT_EXIT(child(NullGuard::kReadOnly, 0), testing::ExitedWithCode(1), kNamed);
}
TEST_F(GuardFault, BlockZeroHard) { EXPECT_EXIT(child(NullGuard::kHard, 63), testing::ExitedWithCode(1), kNamed); }
TEST_F(GuardFault, SlotMinusOneBlock) {
  EXPECT_EXIT(child(NullGuard::kReadOnly, -64), testing::ExitedWithCode(1), kNamed);
}
TEST_F(GuardFault, PastTheEnd) {
  // The first block whose slab lies wholly behind the last granule.
  EXPECT_EXIT(child(NullGuard::kReadOnly, (kBlocks + (2 << 20) / kStride + 1) * 64), testing::ExitedWithCode(1),
              kNamed);
}
TEST_F(GuardFault, OffLetsItHappen) {
  EXPECT_EXIT(child(NullGuard::kOff, 0), testing::ExitedWithCode(gpu() == nullptr ? 1 : 0), "");
}

TEST(Guard, LiveBlocksAreWritable) {
  BZ_SKIP_WITHOUT_GPU();
  for (const NullGuard guard : {NullGuard::kOff, NullGuard::kReadOnly, NullGuard::kHard}) {
    const auto memory = slabs(guard);
    store_at(*memory, 64);
    store_at(*memory, kBlocks * 64 - 1);
    EXPECT_TRUE(memory->null_block_is_zero());
    EXPECT_TRUE(memory->canary_intact());
  }
}

TEST(Guard, OffIsSeenAndRezeroed) {
  BZ_SKIP_WITHOUT_GPU();
  const auto memory = slabs(NullGuard::kOff);
  const char bytes[] = "not zero";
  gpu()->copy_to_device(memory->base() + 640, bytes, sizeof(bytes));
  EXPECT_FALSE(memory->null_block_is_zero());
  memory->rezero_null_block();
  EXPECT_TRUE(memory->null_block_is_zero());
}

TEST(Guard, CanaryIsSeen) {
  BZ_SKIP_WITHOUT_GPU();
  const auto memory = slabs(NullGuard::kReadOnly);
  gpu()->copy_to_device(memory->base() + kBlocks * kStride + 1, "x", 1);
  EXPECT_FALSE(memory->canary_intact());
}

TEST(Guard, MoreThanTheGpuHasIsOneLine) {
  BZ_SKIP_WITHOUT_GPU();
  const auto r = gpu()->create_slabs({int64_t{1} << 20, int64_t{1} << 20, NullGuard::kReadOnly});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().exit_code(), 2);
  EXPECT_NE(r.status().message().find("cannot be mapped"), std::string::npos) << r.status().message();
}

TEST(Registry, NamesThatAreNoDevice) {
  for (const char* name : {"cuda:x", "cuda:-1", "gpu", "cuda:"}) {
    const auto d = device::create_device({.name = name});
    ASSERT_FALSE(d.ok()) << name;
    EXPECT_EQ(d.status().exit_code(), 2) << name;
  }
  if (gpu() == nullptr) {
    const auto d = device::create_device({.name = "cuda:0"});
    EXPECT_EQ(d.status().exit_code(), 2);
    EXPECT_NE(d.status().message().find("--device cpu"), std::string::npos);
  }
}

}  // namespace
}  // namespace bz::test
