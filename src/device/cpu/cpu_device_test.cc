#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_slabs.h"
#include "device/cpu/cpu_stream.h"
#include "device/cpu/fault_handler.h"

namespace bz::device::cpu {
namespace {

struct FillParams {
  int32_t* out;
  const int32_t* value;
  int64_t n;
};
void fill(const FillParams& p, Worker& w) {
  w.parallel_for(p.n, 3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p.out[i] += *p.value + static_cast<int32_t>(i);
  });
}

TEST(CpuGraph, RecordsInsteadOfRunningAndReadsValuesAtReplay) {
  ThreadPool pool(2);
  CpuStream stream(&pool);
  std::vector<int32_t> out(10);
  int32_t value = 1;
  stream.begin_capture();
  enqueue(stream, "fill", FillParams{out.data(), &value, 10}, &fill);
  const auto graph = stream.end_capture().value();
  EXPECT_EQ(out[9], 0);
  EXPECT_EQ(graph->num_nodes(), 1u);
  value = 5;  // behind an address: read at replay
  stream.launch(*graph);
  EXPECT_EQ(out[9], 14);
}

std::unique_ptr<SlabMemory> slabs(NullGuard guard, int64_t stride = 1152, int64_t blocks = 9) {
  return create_cpu_slabs({stride, blocks, guard}).value();
}

TEST(CpuSlabs, BlocksAreWritableAndTheNullBlockStaysZero) {
  for (const NullGuard guard : {NullGuard::kOff, NullGuard::kReadOnly, NullGuard::kHard}) {
    auto memory = slabs(guard);
    std::memset(memory->base() + 1152, 0xAB, 8 * 1152);
    EXPECT_TRUE(memory->null_block_is_zero());
    EXPECT_TRUE(memory->canary_intact());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->base() + 1152) % kCpuGranule, 0u);
  }
}

TEST(CpuSlabs, GuardOffSeesAWriteInTheBytesAndRezeroes) {
  auto memory = slabs(NullGuard::kOff);
  memory->base()[5] = std::byte{1};
  EXPECT_FALSE(memory->null_block_is_zero());
  memory->rezero_null_block();
  EXPECT_TRUE(memory->null_block_is_zero());
}

TEST(CpuSlabs, TailWriteBreaksTheCanary) {
  auto memory = slabs(NullGuard::kReadOnly, 1152, 9);  // 8 * 1152 is not a multiple of the granule
  memory->base()[9 * 1152] = std::byte{1};
  EXPECT_FALSE(memory->canary_intact());
}

struct PokeParams {
  std::byte* address;
  int32_t read;
};
void poke(const PokeParams& p, Worker& w) {
  if (w.index() != 0) return;
  volatile std::byte* byte = p.address;
  if (p.read) {
    (void)*byte;
  } else {
    *byte = std::byte{1};
  }
}

void poke_in_step(NullGuard guard, int64_t offset, bool read) {
  auto memory = slabs(guard, 4096, 4);
  ThreadPool pool(2);
  CpuStream stream(&pool);
  stream.set_layer(3);
  stream.begin_step(17);
  enqueue(stream, "poke", PokeParams{memory->base() + offset, read ? 1 : 0}, &poke);
}

TEST(GuardDeathTest, AWriteToTheNullBlockNamesOpLayerAndStep) {
  EXPECT_EXIT(poke_in_step(NullGuard::kReadOnly, 100, false), testing::ExitedWithCode(1),
              "guard fault: access to block 0, the null block, at byte 100 by op poke, layer 3, step 17");
}
TEST(GuardDeathTest, AWriteToSlotMinusOneFaults) {
  EXPECT_EXIT(poke_in_step(NullGuard::kReadOnly, -128, false), testing::ExitedWithCode(1), "slot -1.* by op poke");
}
TEST(GuardDeathTest, AWritePastTheLastBlockFaults) {
  EXPECT_EXIT(poke_in_step(NullGuard::kReadOnly, 4 * 4096, false), testing::ExitedWithCode(1),
              "past the last block \\(3\\) by 0 bytes by op poke");
}
TEST(GuardDeathTest, HardFaultsOnAReadToo) {
  poke_in_step(NullGuard::kReadOnly, 100, true);  // readable
  EXPECT_EXIT(poke_in_step(NullGuard::kHard, 100, true), testing::ExitedWithCode(1), "block 0");
}

}  // namespace
}  // namespace bz::device::cpu
