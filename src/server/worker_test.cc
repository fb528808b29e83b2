#include "server/worker.h"

#include <future>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http.h"

namespace bz::server {
namespace {

using testing::ElementsAre;

// A worker that is busy until go().
class BusyWorker {
 public:
  explicit BusyWorker(size_t max_bytes) : worker_(max_bytes) {
    std::promise<void> busy;
    EXPECT_TRUE(worker_.submit(1, [this, &busy] {
      busy.set_value();
      go_.get_future().wait();
    }));
    busy.get_future().wait();
  }
  ~BusyWorker() { release(); }
  bool submit(size_t bytes) {
    return worker_.submit(bytes, [this, bytes] { done_.push_back(bytes); });
  }
  // The texts in the order in which they were worked on.
  std::vector<size_t> go() {
    std::promise<void> last;
    EXPECT_TRUE(worker_.submit(SIZE_MAX / 4, [&last] { last.set_value(); }));
    release();
    last.get_future().wait();
    return done_;
  }

 private:
  void release() {
    if (!std::exchange(released_, true)) go_.set_value();
  }

  bool released_ = false;
  std::promise<void> go_;
  std::vector<size_t> done_;
  Worker worker_;  // last: its thread uses the others
};

TEST(WorkerTest, AShortTextWaitsForNoneThatIsLonger) {
  BusyWorker worker(SIZE_MAX / 2);
  for (const size_t bytes : {8'000'000u, 30'000u, 8'000'000u, 20'000u, 1'000'000u}) EXPECT_TRUE(worker.submit(bytes));
  EXPECT_THAT(worker.go(), ElementsAre(20'000u, 30'000u, 1'000'000u, 8'000'000u, 8'000'000u));
}

TEST(WorkerTest, LongTextsThatWaitLeaveRoomForShortOnes) {
  constexpr size_t kMost = 10'000'000, kSmall = kSmallBodyBytes;
  BusyWorker worker(kMost);
  while (worker.submit(2'000'000)) {
  }
  EXPECT_FALSE(worker.submit(kSmall + 1));
  size_t small = 0;
  while (worker.submit(kSmall)) ++small;
  EXPECT_EQ(small, kMost / kSmall);
}

}  // namespace
}  // namespace bz::server
