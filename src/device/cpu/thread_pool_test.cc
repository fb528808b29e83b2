// Built twice: as it is, and with -DBZ_YIELD_POINTS, where threads are taken off their core where it could matter.
#include <atomic>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu/thread_pool.h"

namespace bz::device::cpu {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceWithAnyNumberOfThreads) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    std::vector<int> times(1001);
    pool.run(1, [&](size_t, Worker& w) {
      w.parallel_for(1001, 3, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
      });
    });
    EXPECT_EQ(times, std::vector<int>(1001, 1));
  }
}

TEST(ThreadPool, BarrierMakesEarlierWritesVisible) {
  ThreadPool pool(3);
  std::atomic<int> before{0};
  std::atomic<int> wrong{0};
  for (int round = 0; round < 2000; ++round) {
    before = 0;
    pool.run(1, [&](size_t, Worker& w) {
      w.parallel_for(100, 1, [&](int64_t, int64_t) { before.fetch_add(1, std::memory_order_relaxed); });
      w.barrier();
      w.parallel_for(100, 1, [&](int64_t, int64_t) {
        if (before.load(std::memory_order_relaxed) != 100) wrong.fetch_add(1);
      });
      w.barrier();
      w.parallel_for(100, 1, [&](int64_t, int64_t) { before.fetch_add(1, std::memory_order_relaxed); });
    });
    ASSERT_EQ(before, 200);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ABusyMachineDoesNotMakeAnOpWaitForAThreadThatHasNothingLeftToDo) {
  // Far more threads than cores: most of them are never running when an op begins.
  ThreadPool pool(64);
  std::atomic<int> chunks{0};
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 2000; ++round) {
    pool.run(1, [&](size_t, Worker& w) { w.parallel_for(8, 1, [&](int64_t, int64_t) { chunks.fetch_add(1); }); });
  }
  EXPECT_EQ(chunks, 16000);
  // Waiting for all 64 takes over 10 ms an op on two cores.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(ThreadPool, EndsWhenItIsDestroyedWhileItsThreadsWakeForTheLastOp) {
  std::atomic<int> chunks{0};
  for (int round = 0; round < 2000; ++round) {
    ThreadPool pool(4);
    pool.run(1, [&](size_t, Worker& w) { w.parallel_for(8, 1, [&](int64_t, int64_t) { chunks.fetch_add(1); }); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(37 * round);
    while (std::chrono::steady_clock::now() < end) continue;
  }
  EXPECT_EQ(chunks, 16000);
}

}  // namespace
}  // namespace bz::device::cpu
