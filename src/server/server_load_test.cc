// Load: many clients at once that stream, leave, send garbage and read slowly. No good request fails, and nothing is
// left behind. A second by default; BLOCKZERO_LOAD_SECONDS=120 for a long one.
#include <atomic>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "server/running_server.h"

namespace bz::server {
namespace {

constexpr int kClients = 256;
constexpr int kThreads = 8;

std::chrono::seconds load_time() {
  const char* text = std::getenv("BLOCKZERO_LOAD_SECONDS");
  return std::chrono::seconds(text ? std::atoi(text) : 1);
}

struct Counts {
  std::atomic<int> good{0}, bad{0}, left{0}, malformed{0};
};

constexpr const char* kMalformed[] = {
    R"({"prompt":"x","max_tokens":-1})", R"({"prompt":NaN})", "{", R"({"prompt":[[[[1]]]]})", R"({"prompt":"FAIL"})",
};

// One client's next request: 10 % malformed, 10 % leave in the middle, the others are read to their end.
void one_request(RawClient& client, int number, std::mt19937& random, Counts& counts) {
  const unsigned dice = random() % 10;
  if (dice == 0) {
    ++counts.malformed;
    client.post("/v1/completions", kMalformed[random() % std::size(kMalformed)]);
    if (client.read_answer().status < 400) ++counts.bad;
    return;
  }
  const std::string prompt = fmt::format("client {:03} ", number);
  const size_t length = 1 + random() % 60;
  client.post("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":{},"stream":{}}})", prompt, length,
                                             dice % 2 ? "true" : "false"));
  if (dice == 1) {
    ++counts.left;
    if (random() % 2) client.read_head();
    client.close();
    return;
  }
  const RawAnswer answer = client.read_answer();
  const bool right = answer.status == 200 && answer.complete && answer.body.find("\"length\"") != std::string::npos;
  ++(right ? counts.good : counts.bad);
}

TEST(ServerLoad, GoodRequestsDoNotSufferFromBadOnes) {
  RunningServer s(test_options(), std::chrono::microseconds(500));
  Counts counts;
  const auto end = std::chrono::steady_clock::now() + load_time();
  const auto drive = [&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread));
    std::vector<std::unique_ptr<RawClient>> clients(kClients / kThreads);
    while (std::chrono::steady_clock::now() < end) {
      const size_t i = random() % clients.size();
      if (!clients[i] || !clients[i]->open()) clients[i] = std::make_unique<RawClient>(s.port);
      one_request(*clients[i], thread * 32 + static_cast<int>(i), random, counts);
    }
  };
  // A client that never reads, all the time.
  RawClient slow(s.port, 1024);
  slow.post("/v1/completions", R"({"prompt":["abc","def","ghi"],"max_tokens":4000,"stream":true})");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(drive, i);
  for (std::thread& t : threads) t.join();
  slow.close();

  EXPECT_EQ(counts.bad, 0);
  EXPECT_GT(counts.good, 50);
  EXPECT_GT(counts.left, 0);
  EXPECT_GT(counts.malformed, 0);
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 0; }));
}

// All at the same moment: 256 streams.
TEST(ServerLoad, TwoHundredFiftySixStreamsAtOnce) {
  RunningServer s(test_options(), std::chrono::microseconds(500));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(s.port));
    clients.back()->post("/v1/completions", R"({"prompt":"abcd","max_tokens":100,"stream":true})");
  }
  for (auto& client : clients) {
    const RawAnswer answer = client->read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  }
}

}  // namespace
}  // namespace bz::server
