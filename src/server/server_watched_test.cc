// What operators see of a server: metrics, probes, the access log; and the chat template alone.
#include <unistd.h>
#include <cstdio>
#include <fstream>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/access_log.h"
#include "server/json.h"
#include "server/running_server.h"

namespace bz::server {
namespace {

using ::testing::HasSubstr;

const std::string kHello = R"({"model":"mock","prompt":"Hello","max_tokens":5})";

class ServerWatched : public ::testing::Test {
 protected:
  static void expect_refused(const RawAnswer& answer) {
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "messages");
  }
  RunningServer s;
};

// What dashboards of other engines look for, under our prefix, each with its type.
TEST_F(ServerWatched, MetricsHaveTheFieldsNames) {
  RawClient client(s.port);
  client.post("/v1/completions", kHello);
  client.read_answer();
  client.get("/metrics");
  const std::string text = client.read_answer().body;
  for (const char* name :
       {"num_requests_running gauge", "num_requests_waiting gauge", "kv_cache_usage_perc gauge",
        "num_preemptions_total counter", "prompt_tokens_total counter", "generation_tokens_total counter",
        "prefix_cache_queries_total counter", "prefix_cache_hits_total counter", "request_success_total counter",
        "time_to_first_token_seconds histogram", "inter_token_latency_seconds histogram",
        "e2e_request_latency_seconds histogram", "request_time_per_output_token_seconds histogram",
        "request_prompt_tokens histogram", "request_generation_tokens histogram", "request_params_max_tokens histogram",
        // and our own
        "null_block_clean gauge", "engine_alive gauge", "padded_rows_total counter", "dummy_steps_total counter",
        "steps_total counter", "prefix_cache_misses_total counter"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("# TYPE blockzero:{}\n", name)));
  }
  EXPECT_THAT(text, HasSubstr("blockzero:request_time_per_output_token_seconds_count{model_name=\"mock\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("blockzero:request_params_max_tokens_sum{model_name=\"mock\"} 5\n"));
}

TEST_F(ServerWatched, LiveAndReadyAreTwoThings) {
  RunningServer loading(test_options(), std::chrono::microseconds(200), false);
  RawClient client(loading.port);
  const auto status_of = [&](const char* path) {
    client.get(path);
    return client.read_answer().status;
  };
  EXPECT_EQ(status_of("/health/live"), 200);  // a restart would not make it load faster
  EXPECT_EQ(status_of("/health/ready"), 503);
  loading.attach();
  EXPECT_TRUE(eventually([&] { return status_of("/health/ready") == 200; }));
  loading.engine->dirty_null_block();
  EXPECT_EQ(status_of("/health/live"), 503);
  EXPECT_EQ(status_of("/health/ready"), 503);
}

TEST_F(ServerWatched, ProbesDoNotQueueUpBehindALongStep) {
  s.engine->stats_delay_ms = 300;
  std::vector<std::unique_ptr<RawClient>> probes;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 40; ++i) {
    probes.push_back(std::make_unique<RawClient>(s.port));
    probes.back()->get("/health/live");
  }
  for (const auto& probe : probes) EXPECT_EQ(probe->read_answer().status, 200);
  // Two answers of the engine are 0.6 s; one each would be 12 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST_F(ServerWatched, TheChatTemplateAlone) {
  RawClient client(s.port);
  client.post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(Json::parse(client.read_answer().body)["prompt"], "user: hi\nassistant:");
  client.post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false})");
  EXPECT_EQ(Json::parse(client.read_answer().body)["prompt"], "user: hi\n");
  client.post("/apply-template", R"({"messages":[{"role":"user","content":"RAISE"}]})");
  expect_refused(client.read_answer());
  client.post("/apply-template", R"({"prompt":"x"})");
  expect_refused(client.read_answer());
}

TEST(AccessLogTest, TheAccessLogSaysWhatWasAnswered) {
  std::mutex mutex;
  std::vector<Json> lines;
  ServerOptions options = test_options();
  options.access_log = [&](const AccessRecord& record) {
    const std::lock_guard lock(mutex);
    lines.push_back(Json::parse(access_line(record, 1.5)));
  };
  RunningServer s(options);
  const auto line = [&](size_t i) {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return lines.size() > i;
    }));
    const std::lock_guard lock(mutex);
    return lines.at(i);
  };
  RawClient client(s.port);
  client.post("/v1/completions", kHello, "X-Request-Id: mine-1\r\n");
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(line(0)["id"], "mine-1");
  EXPECT_EQ(line(0)["method"], "POST");
  EXPECT_EQ(line(0)["path"], "/v1/completions");
  EXPECT_EQ(line(0)["status"], 200);
  EXPECT_EQ(line(0)["client"], "127.0.0.1");
  EXPECT_EQ(line(0)["bytes"], answer.head.size() + answer.body.size());
  EXPECT_EQ(line(0)["prompt_tokens"], 5);
  EXPECT_EQ(line(0)["completion_tokens"], 5);
  EXPECT_EQ(line(0)["cut_off"], false);
  EXPECT_GT(line(0)["ms"], 0);
  client.get("/nowhere");
  const RawAnswer refused = client.read_answer();
  EXPECT_EQ(line(1)["status"], 404);
  EXPECT_EQ(line(1)["id"], refused.header("x-request-id"));
  client.send("no HTTP at all\r\n\r\n");
  client.read_answer();
  EXPECT_EQ(line(2)["status"], 505);
  EXPECT_EQ(line(2)["path"], "");
  RawClient leaving(s.port);
  leaving.post("/v1/completions", R"({"prompt":"SLOW"})");
  EXPECT_TRUE(eventually([&] { return s.engine->num_running() == 1; }));
  leaving.close();
  EXPECT_EQ(line(3)["cut_off"], true);
  EXPECT_EQ(line(3)["status"], 0);
}

TEST(AccessLogTest, AppendsLinesAndRefusesABadPath) {
  EXPECT_THAT(open_access_log("/no/such/folder/log").status().message(), HasSubstr("--access-log /no/such/folder/log"));
  const std::string path = testing::TempDir() + "access_log_test." + std::to_string(getpid());
  for (int i = 0; i < 2; ++i) {
    const auto log = open_access_log(path);
    ASSERT_TRUE(log.ok());
    const Notes notes{{"n", 7}};
    (*log)({.client = "c", .method = "GET", .path = "/a\"b\n", .request_id = "r", .status = 200, .notes = notes});
  }
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_EQ(Json::parse(line)["path"], "/a\"b\n");
    EXPECT_EQ(Json::parse(line)["n"], 7);
  }
  EXPECT_FALSE(std::getline(file, line));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace bz::server
