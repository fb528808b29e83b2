// The emulation itself: who meets whom, and what happens to those who wait in vain.
#include <vector>

#include <gtest/gtest.h>

#include "emulated/cuda.h"

namespace bz::test {
namespace {

TEST(Cta, EveryThreadOfEveryCtaRuns) {
  std::vector<int> runs(12 * 96);
  run_ctas({3, 2, 2}, 96, [&] {
    const Place& b = block_index;
    ++runs[((b.z * 2 + b.y) * 3 + b.x) * 96 + thread_index.x];
  });
  EXPECT_EQ(runs, std::vector<int>(12 * 96, 1));
}

TEST(Cta, NobodyPassesABarrierBeforeAllHaveCome) {
  for (int turn = 0; turn < 2; ++turn) {  // the first threads run first, then the last
    int come = 0;
    std::vector<int> seen(128);
    run_ctas({1, 1, 1}, 128, [&] {
      ++come;
      __syncthreads();
      seen[thread_index.x] = come;
    });
    EXPECT_EQ(seen, std::vector<int>(128, 128));
  }
}

TEST(Cta, WarpsMeetAmongThemselves) {
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<int> sums(64);
    unsigned odd[2] = {};
    run_ctas({1, 1, 1}, 64, [&] {
      const unsigned t = thread_index.x;
      if (t < 32) __ballot_sync(~0u, true);  // once more than the other warp
      int v = static_cast<int>(t);
      for (unsigned offset = 1; offset < 32; offset *= 2) {
        const int below = __shfl_up_sync(~0u, v, offset);
        if (t % 32 >= offset) v += below;
      }
      sums[t] = v;
      odd[t / 32] = __ballot_sync(~0u, t % 2 == 1);
    });
    EXPECT_EQ(sums[31], 31 * 32 / 2);
    EXPECT_EQ(sums[63], (32 + 63) * 32 / 2);
    EXPECT_EQ(odd[0], 0xaaaaaaaau);
    EXPECT_EQ(odd[1], 0xaaaaaaaau);
    std::vector<float> others(32);
    run_ctas({1, 1, 1}, 32, [&] {
      const unsigned t = thread_index.x;
      others[t] =
          __shfl_xor_sync(~0u, 0.5f * static_cast<float>(t), 3) + __shfl_sync(~0u, 100.0f * static_cast<float>(t), 7);
    });
    EXPECT_EQ(others[5], 0.5f * (5 ^ 3) + 700.0f);
  }
}

TEST(CtaDeathTest, ABarrierThatSomeNeverReachIsSaid) {
  EXPECT_DEATH(run_ctas({1, 1, 1}, 64,
                        [] {
                          if (thread_index.x < 32) meet_warp();
                          if (thread_index.x == 40) return meet_warp();
                          __syncthreads();
                        }),
               "wait for others that never come");
}

}  // namespace
}  // namespace bz::test
