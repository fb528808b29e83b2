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
#include "engine/fault_record.h"
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

// The record of a fault while a request decoded.
class FaultReplay : public FailStop {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("blockzero_fail_stop_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    setenv("BLOCKZERO_FAULT_DIR", folder_.c_str(), 1);
    engine::LoadOptions o = options();
    o.num_draft_tokens = 2;
    const auto model = load(o);
    const auto sink = std::make_shared<Ending>();
    model->core().add(engine::RequestId(uint64_t{1}), request(), sink);
    for (int i = 0; i < 3; ++i) model->core().step();
    device::call_fault_hook(model->core().scheduler().cache().last_sequence());
    EXPECT_EQ(sink->reason.get_future().get(), FinishReason::kError);
    record_ = json::parse(std::ifstream(engine::fault_record_path()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Status replay(const json& record) {
    said_.clear();
    std::ofstream(engine::fault_record_path()) << record;
    return engine::replay_fault_record(engine::fault_record_path(),
                                       [&](const std::string& line) { said_ += line + "\n"; });
  }

  std::filesystem::path folder_;
  json record_;
  std::string said_;
};

// The record is of the rows that ran: replayed, a table that points out of the cache is named.
TEST_F(FaultReplay, NamesTheRowWhoseTableIsWrong) {
  EXPECT_EQ(record_.at("options").at("num_draft_tokens"), 2);
  for (json& change : record_.at("tables")) {
    const bool is_block = change.at(0) == static_cast<uint32_t>(kv::ChangeKind::kBlock);
    if (is_block && change.at(3) == 1) change.at(4) = 1000000;
  }
  const Status replayed = replay(record_);
  EXPECT_TRUE(replayed.ok()) << replayed.message();
  EXPECT_THAT(said_, testing::HasSubstr("group 0: token 0 of table row 1 writes slot"));
  EXPECT_THAT(said_, testing::HasSubstr("in block 1000000"));
}

// Somebody edits a record, to try another table: a number that does not fit ended the process with a check of ours.
TEST_F(FaultReplay, OfARecordWithAnyNumberInAnyPlaceRunsOrIsRefusedInOneLine) {
  int ran = 0, refused = 0;
  const json flat = record_.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    if (!value.is_number()) continue;
    for (const int64_t edit :
         {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{3}, int64_t{100}, int64_t{1} << 31, int64_t{1} << 62}) {
      json edited = record_;
      edited[json::json_pointer(pointer)] = edit;
      const Status replayed = replay(edited);
      ++(replayed.ok() ? ran : refused);
      if (replayed.ok()) continue;
      EXPECT_EQ(replayed.exit_code(), 2) << pointer << " " << edit << ": " << replayed.message();
      EXPECT_EQ(replayed.message().find('\n'), std::string::npos) << replayed.message();
      EXPECT_THAT(replayed.message(), testing::HasSubstr(engine::fault_record_path()));
    }
  }
  EXPECT_GT(ran, 10);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace bz::test
