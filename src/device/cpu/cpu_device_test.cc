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

TEST(ThreadPool, CoversEveryIndexOnceWithAnyNumberOfThreads) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    CpuStream stream(&pool);
    std::vector<int32_t> out(1001);
    const int32_t seven = 7;
    enqueue(stream, "fill", FillParams{out.data(), &seven, 1001}, &fill);
    for (int i = 0; i < 1001; ++i) ASSERT_EQ(out[i], 7 + i);
  }
}

struct BarrierParams {
  std::atomic<int>* before;
  std::atomic<int>* wrong;
};
TEST(ThreadPool, BarrierMakesEarlierWritesVisible) {
  ThreadPool pool(3);
  CpuStream stream(&pool);
  std::atomic<int> before{0};
  std::atomic<int> wrong{0};
  for (int round = 0; round < 2000; ++round) {
    before = 0;
    enqueue(
        stream, "barrier", BarrierParams{&before, &wrong}, +[](const BarrierParams& p, Worker& w) {
          w.parallel_for(100, 1, [&](int64_t, int64_t) { p.before->fetch_add(1, std::memory_order_relaxed); });
          w.barrier();
          w.parallel_for(100, 1, [&](int64_t, int64_t) {
            if (p.before->load(std::memory_order_relaxed) != 100) p.wrong->fetch_add(1);
          });
          w.barrier();
          w.parallel_for(100, 1, [&](int64_t, int64_t) { p.before->fetch_add(1, std::memory_order_relaxed); });
        });
    ASSERT_EQ(before, 200);
  }
  EXPECT_EQ(wrong, 0);
}

struct StuckParams {
  std::atomic<int>* chunks;
};
TEST(ThreadPool, ABusyMachineDoesNotMakeAnOpWaitForAThreadThatHasNothingLeftToDo) {
  // Far more threads than cores: most of them are never running when an op begins.
  ThreadPool pool(64);
  CpuStream stream(&pool);
  std::atomic<int> chunks{0};
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 2000; ++round) {
    enqueue(
        stream, "count", StuckParams{&chunks}, +[](const StuckParams& p, Worker& w) {
          w.parallel_for(8, 1, [&](int64_t, int64_t) { p.chunks->fetch_add(1); });
        });
  }
  EXPECT_EQ(chunks, 16000);
  // Waiting for all 64 takes over 10 ms an op on two cores.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
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
