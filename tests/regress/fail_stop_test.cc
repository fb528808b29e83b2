// What is left behind when the engine stops: every client hears of it, and the record names what ran.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <semaphore>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "device/fault_hook.h"
#include "engine/flight_recorder.h"
#include "engine/threaded_engine.h"
#include "support/models.h"

namespace bz::test {
namespace {

using engine::FinishReason;
using nlohmann::json;

struct Ending final : engine::Sink {
  void on_output(const engine::Output& output) override {
    if (output.finished) reason.set_value(*output.finished);
  }
  std::promise<FinishReason> reason;
};

// The null device's ops, but a step may wait in its prepare and then find another step's plan (PAD-10).
struct Gate {
  std::atomic<bool> armed{false};
  std::binary_semaphore entered{0}, leave{0};
};
Gate* g_gate = nullptr;

const ops::OpTable& null_ops() { return **ops::op_table_for(device::DeviceKind::kNull); }

void prepare_at_the_gate(device::Stream& stream, const ops::PrepareParams& p) {
  if (g_gate->armed.exchange(false)) {
    g_gate->entered.release();
    g_gate->leave.acquire();
    auto* header = const_cast<ops::StagedHeader*>(p.ring[*p.step_count % ops::PrepareParams::kRingSlots].header);
    ++header->sequence;
  }
  null_ops().prepare(stream, p);
}

class FailStop : public testing::Test {
 protected:
  FailStop() : file_(quantized_tiny()) {}

  engine::LoadOptions options() const {
    engine::LoadOptions o;
    o.model_path = file_.path();
    o.device.name = "null";
    o.kv_cache_bytes = int64_t{4} << 20;
    o.block_size = 16;
    o.graphs = engine::GraphMode::kNone;
    return o;
  }
  static engine::Request request() {
    engine::Request r;
    for (int32_t i = 0; i < 20; ++i) r.prompt.push_back(i);
    r.max_tokens = 100;
    r.ignore_eos = true;
    return r;
  }

  TemporaryModel file_;
};

TEST_F(FailStop, ARequestThatComesWhileTheEngineStopsGetsAnErrorToo) {
  Gate gate;
  g_gate = &gate;
  ops::OpTable ops = null_ops();
  ops.prepare = prepare_at_the_gate;
  engine::LoadOptions o = options();
  o.ops = &ops;
  const auto model = load(o);
  engine::ThreadedEngine engine(model->core(), model->info());
  const auto early = std::make_shared<Ending>(), late = std::make_shared<Ending>();
  gate.armed = true;
  ASSERT_TRUE(engine.submit(request(), early).ok());
  gate.entered.acquire();
  ASSERT_TRUE(engine.submit(request(), late).ok());
  gate.leave.release();
  for (const auto& sink : {early, late}) {
    auto reason = sink->reason.get_future();
    ASSERT_EQ(reason.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "the client waits for ever";
    EXPECT_EQ(reason.get(), FinishReason::kError);
  }
  EXPECT_EQ(engine.submit(request(), late).status().code(), StatusCode::kUnavailable);
}

// The record of a fault is of the rows that ran: replayed, a table that points out of the cache is named.
TEST_F(FailStop, AFaultRecordNamesTheRowWhoseTableIsWrong) {
  const auto folder = std::filesystem::temp_directory_path() / ("blockzero_fail_stop_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  setenv("BLOCKZERO_FAULT_DIR", folder.c_str(), 1);
  engine::LoadOptions o = options();
  o.num_draft_tokens = 2;
  const auto model = load(o);
  const auto sink = std::make_shared<Ending>();
  model->core().add(engine::RequestId(uint64_t{1}), request(), sink);
  for (int i = 0; i < 3; ++i) model->core().step();
  device::call_fault_hook(model->core().scheduler().cache().last_sequence());
  EXPECT_EQ(sink->reason.get_future().get(), FinishReason::kError);

  const std::string path = engine::fault_record_path();
  json record = json::parse(std::ifstream(path));
  EXPECT_EQ(record.at("options").at("num_draft_tokens"), 2);
  for (json& change : record.at("tables")) {
    const bool is_block = change.at(0) == static_cast<uint32_t>(kv::ChangeKind::kBlock);
    if (is_block && change.at(3) == 1) change.at(4) = 1000000;
  }
  std::ofstream(path) << record;
  std::string said;
  const Status replayed = engine::replay_fault_record(path, [&](const std::string& line) { said += line + "\n"; });
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(replayed.ok()) << replayed.message();
  EXPECT_THAT(said, testing::HasSubstr("group 0: token 0 of table row 1 writes slot"));
  EXPECT_THAT(said, testing::HasSubstr("in block 1000000"));
}

}  // namespace
}  // namespace bz::test
