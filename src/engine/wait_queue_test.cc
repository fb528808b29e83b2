// Whose turn it is: priorities, fair shares, and that nobody waits for ever.
#include "engine/wait_queue.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace bz::engine {
namespace {

class WaitQueueTest : public testing::Test {
 protected:
  StatePtr make(const std::string& client, int32_t priority = 0) {
    auto s = std::make_unique<RequestState>();
    s->id = RequestId(++last_id_);
    s->priority = static_cast<int16_t>(priority);
    queue_.open(*s, client);
    client_of_[s->id] = client;
    return s;
  }
  uint64_t add(const std::string& client, int32_t priority = 0) {
    queue_.add(make(client, priority));
    return last_id_;
  }
  // Admits whose turn it is and charges the client.
  StatePtr admit(int64_t tokens = 10) {
    StatePtr s = queue_.admit(queue_.next());
    WaitQueue::charge(*s, tokens);
    return s;
  }
  uint64_t serve(int64_t tokens = 10) {
    const StatePtr s = admit(tokens);
    queue_.close(*s);
    return s->id.value();
  }

  WaitQueue queue_;
  std::map<RequestId, std::string> client_of_;
  uint64_t last_id_ = 0;
};

TEST_F(WaitQueueTest, InOrderOfArrival) {
  for (int i = 0; i < 4; ++i) add("a");
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(serve(), id);
}

TEST_F(WaitQueueTest, UrgentOnesOvertake) {
  add("a", 5);
  add("a");
  add("a", -5);
  EXPECT_EQ(serve(), 3u);
  EXPECT_EQ(serve(), 2u);
  EXPECT_EQ(serve(), 1u);
}

TEST_F(WaitQueueTest, APreemptedOneGoesFirstButNotBeforeUrgentOnes) {
  add("a");
  StatePtr first = admit(1000);
  add("b");
  add("c", -1);
  queue_.put_back(std::move(first));
  EXPECT_EQ(serve(), 3u);
  EXPECT_EQ(serve(), 1u);
  EXPECT_EQ(serve(), 2u);
}

TEST_F(WaitQueueTest, TheLastPreemptedOfSeveralGoesFirst) {
  StatePtr a = (add("a"), admit()), b = (add("a"), admit());
  queue_.put_back(std::move(b));  // the youngest is preempted first
  queue_.put_back(std::move(a));
  EXPECT_EQ(serve(), 1u);
  EXPECT_EQ(serve(), 2u);
}

// A client with a hundred requests in the queue does not keep another's single one waiting.
TEST_F(WaitQueueTest, ClientsTakeTurns) {
  for (int i = 0; i < 100; ++i) add("greedy");
  for (int i = 0; i < 10; ++i) serve();
  const uint64_t modest = add("modest");
  uint64_t turns = 0;
  while (serve() != modest) ++turns;
  EXPECT_LE(turns, 1u);
}

// By tokens, not by requests: short ones are served more often.
TEST_F(WaitQueueTest, SharesAreOfTokens) {
  for (int i = 0; i < 100; ++i) add("long"), add("short");
  std::map<std::string, int64_t> served;
  for (int i = 0; i < 60; ++i) {
    const bool is_long = client_of_[queue_.next().id] == "long";
    const int64_t tokens = is_long ? 50 : 10;
    served[is_long ? "long" : "short"] += tokens;
    serve(tokens);
  }
  EXPECT_NEAR(static_cast<double>(served["long"]), static_cast<double>(served["short"]), 50);
}

// An idle time is no credit: who comes back does not make those wait who were there.
TEST_F(WaitQueueTest, WhoComesBackIsLiftedToTheOthers) {
  add("rare");
  serve();
  for (int i = 0; i < 50; ++i) add("steady");
  for (int i = 0; i < 20; ++i) serve(100);
  for (int i = 0; i < 20; ++i) add("rare");
  std::map<std::string, int> turns;
  for (int i = 0; i < 20; ++i) {
    ++turns[client_of_[queue_.next().id]];
    serve(100);
  }
  EXPECT_NEAR(turns["steady"], turns["rare"], 2);
}

// A flood of urgent requests, each of a new client, delays the least urgent one only so long.
TEST_F(WaitQueueTest, NobodyWaitsForEver) {
  const uint64_t patient = add("patient", kMaxPriority);
  const int64_t most = (2 * kMaxPriority + 1) * WaitQueue::kPatience + 1;
  int64_t turns = 0;
  for (;; ++turns) {
    ASSERT_LE(turns, most);
    add("flood" + std::to_string(turns), -kMaxPriority);
    if (serve() == patient) break;
  }
  EXPECT_GT(turns, 100);  // and is made to wait
}

// Clients that come once and go do not stay in the books, whether others are there or not.
TEST_F(WaitQueueTest, ForgetsVisitorsThatCameOneByOne) {
  for (int i = 0; i < 10000; ++i) {
    add("visitor" + std::to_string(i));
    serve(10 + i % 7);
  }
  EXPECT_LE(queue_.num_clients(), 200u);
}

TEST_F(WaitQueueTest, ForgetsVisitorsThatCameBesideOthers) {
  add("steady");
  const StatePtr steady = admit();
  for (int i = 0; i < 10000; ++i) {
    add("visitor" + std::to_string(i));
    serve(10 + i % 7);
    WaitQueue::charge(*steady, 10);
  }
  EXPECT_LE(queue_.num_clients(), 200u);
}

// The one that has been served least is always one that waits, so that everybody who has gone was served more.
TEST_F(WaitQueueTest, ForgetsVisitorsThatCameToAQueueThatNeverEmpties) {
  for (int i = 0; i < 10; ++i) add("first" + std::to_string(i));
  size_t most = 0;
  for (int i = 0; i < 100000; ++i) {
    add("visitor" + std::to_string(i));
    serve();
    most = std::max(most, queue_.num_clients());
  }
  EXPECT_GT(most, WaitQueue::kMaxAbsent);
  EXPECT_LE(most, 3 * WaitQueue::kMaxAbsent);
}

// The rules of wait_queue.h, word for word, over all who wait; against random traffic.
TEST_F(WaitQueueTest, TheTurnIsWhatTheRulesSay) {
  std::mt19937 random(1);
  const auto dice = [&](int sides) { return static_cast<int>(random() % static_cast<unsigned>(sides)); };
  std::vector<const RequestState*> waiting;
  std::vector<StatePtr> running;
  int64_t admissions = 0, turns_by_patience = 0;
  const auto rank = [&](const RequestState* s) {
    const int64_t level = s->priority - (admissions - s->arrived_at) / WaitQueue::kPatience;
    return std::tuple(level, !s->resumed, s->resumed ? 0 : s->client->served, s->order);
  };
  const auto leave = [&](const RequestState* s) {
    std::erase(waiting, s);
    return queue_.take(*s);
  };
  for (int i = 0; i < 20000; ++i) {
    const int what = dice(10);
    if (what < 4 && waiting.size() < 400) {
      StatePtr s = make("client " + std::to_string(dice(12)), dice(4) == 0 ? dice(9) - 4 : 0);
      waiting.push_back(s.get());
      queue_.add(std::move(s));
    } else if (what < 7 && !waiting.empty()) {
      const RequestState* const turn =
          *std::min_element(waiting.begin(), waiting.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
      ASSERT_EQ(&queue_.next(), turn) << "after " << admissions << " admissions";
      turns_by_patience += turn->priority > 0 && !turn->resumed;
      std::erase(waiting, turn);
      running.push_back(queue_.admit(*turn));
      ++admissions;
      WaitQueue::charge(*running.back(), 1 + dice(50));
    } else if (what < 8 && !running.empty() && waiting.size() < 400) {
      StatePtr s = std::move(running[static_cast<size_t>(dice(static_cast<int>(running.size())))]);
      std::erase(running, nullptr);
      waiting.push_back(s.get());
      queue_.put_back(std::move(s));
    } else if (what < 9 && !running.empty()) {  // one of those that run ends, the others have output tokens
      for (const StatePtr& s : running) WaitQueue::charge(*s, WaitQueue::kOutputCost);
      queue_.close(*running.front());
      running.erase(running.begin());
    } else if (!waiting.empty() && dice(4) == 0) {
      const StatePtr s = leave(waiting[static_cast<size_t>(dice(static_cast<int>(waiting.size())))]);
      queue_.close(*s);
    }
    ASSERT_EQ(queue_.size(), waiting.size());
  }
  EXPECT_GT(turns_by_patience, 50);
}

}  // namespace
}  // namespace bz::engine
