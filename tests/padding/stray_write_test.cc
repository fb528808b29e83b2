// The guard, from inside a step: an op that writes through a slot it should not have ends the process with one line
// that names op, layer and step.
#include <gtest/gtest.h>

#include "device/cpu/cpu_stream.h"
#include "models/llama.h"
#include "support/hand_run.h"
#include "support/models.h"

namespace bz::test {
namespace {

using device::NullGuard;

constexpr int32_t kLayer = 1;
constexpr int32_t kBlockSize = 16;

struct StrayParams {
  std::byte* address;
};
// What the test-only op writes to, and the ops it is smuggled into.
StrayParams g_stray = {};
const ops::OpTable* g_real = nullptr;

void stray_write(const StrayParams& p, device::cpu::Worker& worker) {
  if (worker.index() == 0) *p.address = std::byte{1};
}

void silu_mul_and_stray_write(device::Stream& stream, const ops::SiluMulParams& params) {
  g_real->silu_mul(stream, params);
  if (static_cast<device::cpu::CpuStream&>(stream).layer() != kLayer) return;
  device::cpu::enqueue(stream, "stray_write", g_stray, &stray_write);
}

// Runs two steps of a tiny model whose layer 1 writes one byte of K at `slot`; counted from the end if from_end.
void run_with_stray_write(NullGuard guard, int64_t slot, bool from_end, engine::GraphMode mode) {
  const TemporaryModel tiny(quantized_tiny());
  const auto file = formats::GgufFile::open(tiny.path()).value();
  const auto config = models::model_config_from_gguf(file).value();
  const auto device = device::create_device({.num_threads = 2}).value();
  g_real = ops::op_table_for(device::DeviceKind::kCpu).value();
  ops::OpTable table = *g_real;
  table.silu_mul = &silu_mul_and_stray_write;
  const auto model = models::make_llama(file, config, table, DType::kF16).value();
  const kv::Layout layout =
      kv::make_layout({.layers = model->cache_specs(), .cache_bytes = 16 * 4096, .block_size = kBlockSize}).value();
  BZ_CHECK_EQ(layout.tail_bytes, 0);  // the end of the cache is the end of the mapping
  engine::RunnerConfig runner_config;
  runner_config.limits = {64, 4, 64};
  runner_config.mode = mode;
  runner_config.cache = kv::make_cache_config(layout, 5, 64);
  runner_config.null_guard = guard;
  const auto runner = engine::GraphRunner::create(*device, table, *model, layout, runner_config).value();
  if (from_end) slot += int64_t{layout.num_blocks} * kBlockSize;
  const kv::PageView& k = kv::pages_of_spec(layout, kLayer).k;
  g_stray.address = runner->slabs().base() + kv::entry_offset(k, kv::SlotId(slot)).value();
  HandRun hand(*runner);
  hand.step({1, 2, 3});
  std::fprintf(stderr, "no fault\n");
}

class StrayWriteDeathTest : public testing::TestWithParam<std::tuple<NullGuard, engine::GraphMode>> {
 protected:
  void expect_fault(int64_t slot, bool from_end, const std::string& place) {
    const auto [guard, mode] = GetParam();
    EXPECT_EXIT(run_with_stray_write(guard, slot, from_end, mode), testing::ExitedWithCode(1),
                "guard fault: access to " + place + ".* by op stray_write, layer 1, step 1; stopping");
  }
};

TEST_P(StrayWriteDeathTest, ToBlockZero) { expect_fault(0, false, "block 0, the null block"); }
TEST_P(StrayWriteDeathTest, ToTheLastEntryOfBlockZero) {
  expect_fault(kBlockSize - 1, false, "block 0, the null block");
}
// A stray entry below block 0: the slab of "block -1".
TEST_P(StrayWriteDeathTest, ToSlotMinusOne) {
  expect_fault(-kBlockSize, false, ".* bytes below block 0 \\(slot -1\\)");
}
TEST_P(StrayWriteDeathTest, OnePastTheLastBlock) { expect_fault(0, true, "past the last block"); }

std::string guard_name(const testing::TestParamInfo<StrayWriteDeathTest::ParamType>& info) {
  return std::string(std::get<0>(info.param) == NullGuard::kHard ? "hard" : "read_only") +
         (std::get<1>(info.param) == engine::GraphMode::kFull ? "_replayed" : "_enqueued");
}
INSTANTIATE_TEST_SUITE_P(Guard, StrayWriteDeathTest,
                         testing::Combine(testing::Values(NullGuard::kReadOnly, NullGuard::kHard),
                                          testing::Values(engine::GraphMode::kFull, engine::GraphMode::kNone)),
                         guard_name);

// The control: the same op, writing where it may.
TEST(StrayWrite, IntoALiveBlockDoesNotFault) {
  run_with_stray_write(NullGuard::kHard, 3 * kBlockSize, false, engine::GraphMode::kFull);
}

}  // namespace
}  // namespace bz::test
