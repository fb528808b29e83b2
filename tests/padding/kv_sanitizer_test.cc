// The sanitizer finds each kind of wrong address, row, length and count, and says which. A step runs as it should;
// then one derived value is changed, and the step is checked.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

template <class T>
T& writable(const T* array, int index) {
  return const_cast<T&>(array[index]);
}

// Attention's entry of the i-th short token.
ops::AttentionToken& listed(const ops::StepView& v, int32_t i) {
  return v.groups[0].attention.tokens[static_cast<int32_t>(ops::AttentionClass::kShort) * v.padded_tokens + i];
}

struct Violation {
  const char* name;
  std::function<void(const ops::StepView&)> change;
  const char* report;
};

const Violation kViolations[] = {
    {"row", [](const auto& v) { writable(v.row_index, 0) = 2; }, "batch row 0 names table row 2, should be 1"},
    {"padded_row", [](const auto& v) { writable(v.row_index, 3) = 1; }, "batch row 3 names table row 1, should be 0"},
    {"length", [](const auto& v) { ++writable(v.seq_len, 1); }, "batch row 1 has length 8, should be 7"},
    {"padded_length", [](const auto& v) { writable(v.seq_len, 3) = 5; }, "batch row 3 has length 5, should be 0"},
    {"query_start", [](const auto& v) { writable(v.query_start, 1) = 0; },
     "batch row 1 begins at token 0, should be 1"},
    {"valid_rows", [](const auto& v) { writable(v.num_valid_rows, 0) = kv::NumValidRows(4); },
     "4 rows count as valid, should be 3"},
    {"valid_tokens", [](const auto& v) { writable(v.num_valid_tokens, 0) = kv::NumValidTokens(4); },
     "4 tokens count as valid, should be 3"},
    {"position", [](const auto& v) { writable(v.positions, 2) = 0; }, "token 2 is at position 0, should be 7"},
    {"slot_of_another", [](const auto& v) { v.groups[0].slots[1] = v.groups[0].slots[0]; },
     "token 1 of row 2 writes slot"},
    {"slot_of_block_0", [](const auto& v) { v.groups[0].slots[3] = kv::SlotId(int64_t{0}); },
     "padded token 3 writes slot 0 \\(block 0\\), should be -1"},
    {"attention_row", [](const auto& v) { listed(v, 1).sees.table_row = 1; },
     "token 1 attends to table row 1, should be 2"},
    {"attention_end", [](const auto& v) { ++listed(v, 2).sees.end; },
     "token 2 sees positions 0 to 9, new from 7; should be 0 to 8, new from 7"},
    {"attention_twice", [](const auto& v) { listed(v, 1).token = 0; }, "token 0 is listed 2 times"},
    {"attention_padding",
     [](const auto& v) {
       ops::AttentionCounts& counts = *v.groups[0].attention.counts;
       --counts.of_class[static_cast<int>(ops::AttentionClass::kDead)];
       ++counts.of_class[static_cast<int>(ops::AttentionClass::kShort)];
       listed(v, 3) = {3, {1, 0, 6, 5}};
     },
     "token 3 is padding and not listed as dead"},
    {"attention_class",
     [](const auto& v) {
       ops::AttentionCounts& counts = *v.groups[0].attention.counts;
       --counts.of_class[static_cast<int>(ops::AttentionClass::kShort)];
       ++counts.of_class[static_cast<int>(ops::AttentionClass::kPrompt)];
       v.groups[0].attention.tokens[static_cast<int32_t>(ops::AttentionClass::kPrompt) * v.padded_tokens] =
           listed(v, 2);
     },
     "token 2 of 1 of its row is in the wrong class"},
    {"attention_claims", [](const auto& v) { v.groups[0].attention.counts->lone_claims = 3; },
     "attention's claims are left at 0 and 3, should be 0"},
    {"width", [](const auto& v) { writable(v.groups[0].view.width, 7) = 1; },
     "table row 7 has width 1 on the device, 0 on the host"},
    {"table",
     [](const auto& v) { writable(v.groups[0].view.table, v.groups[0].view.max_blocks_per_row) = kv::BlockId(9u); },
     "table row 1 column 0 is block 9 on the device"},
};

class KvSanitizer : public testing::Test {
 protected:
  KvSanitizer() : file_(quantized_tiny()) {}

  // Three rows decode in a step of four; `change` alters what prepare derived; then the step is checked.
  std::vector<std::string> violations_after(
      const std::function<void(engine::LoadedModel&, const ops::StepView&)>& change) {
    engine::LoadOptions o = test_options(file_.path());
    o.null_guard = device::NullGuard::kOff;
    const auto model = load(o);
    engine::EngineCore& core = model->core();
    engine::KvSanitizer sanitizer(model->device(), model->runner());
    struct Quiet final : engine::Sink {
      void on_output(const engine::Output&) override {}
    };
    for (int32_t i = 0; i < 3; ++i) {
      engine::Request r;
      r.prompt.assign(static_cast<size_t>(5 + i), i);
      r.ignore_eos = true;
      core.add(engine::RequestId(static_cast<uint64_t>(i + 1)), r, std::make_shared<Quiet>());
    }
    int step = 0;
    core.set_observer([&](const engine::StepPlan& plan, const engine::StepResult& result) {
      if (++step != 2) return;
      EXPECT_EQ(result.key.name(), "decode-4");
      change(*model, model->runner().view(result.key));
      sanitizer.check_step(plan, result.key, core.scheduler().cache());
    });
    core.step();
    core.step();
    EXPECT_EQ(step, 2);
    return sanitizer.violations();
  }

  TemporaryModel file_;
};

TEST_F(KvSanitizer, SaysNothingOfARightStep) {
  EXPECT_THAT(violations_after([](auto&, auto&) {}), testing::IsEmpty());
}

TEST_F(KvSanitizer, FindsEveryKindOfWrongValue) {
  for (const Violation& v : kViolations) {
    EXPECT_THAT(violations_after([&](auto&, const ops::StepView& view) { v.change(view); }),
                testing::Contains(testing::ContainsRegex(std::string("step 2: .*") + v.report)))
        << v.name;
  }
}

TEST_F(KvSanitizer, FindsAByteInTheNullBlock) {
  const auto found =
      violations_after([](engine::LoadedModel& m, auto&) { m.runner().slabs().base()[7] = std::byte{1}; });
  EXPECT_THAT(found, testing::ElementsAre("step 2: the null block is not zero (PAD-8)"));
}

TEST_F(KvSanitizer, PoisonsBlocksAsTheyBecomeFree) {
  engine::LoadOptions o = test_options(file_.path());
  o.kv_sanitize = true;
  const auto model = load(o);
  const device::SlabMemory& slabs = model->runner().slabs();
  const auto stride = static_cast<size_t>(slabs.request().block_stride);
  const auto is_poison = [&](size_t block) {
    const std::byte* begin = slabs.base() + block * stride;
    return std::all_of(begin, begin + stride, [](std::byte b) { return b == std::byte{0xFF}; });
  };
  const auto num_poisoned = [&] {
    size_t n = 0;
    for (size_t b = 1; b < static_cast<size_t>(slabs.request().num_blocks); ++b) n += is_poison(b) ? 1 : 0;
    return n;
  };
  const auto all = static_cast<size_t>(slabs.request().num_blocks - 1);
  EXPECT_EQ(num_poisoned(), all);
  Session session(*model);
  session.submit(mixed_requests(1, 20, 4, 320, 1)[0]);
  session.step();
  EXPECT_LT(num_poisoned(), all);
  session.finish_all_work();
  EXPECT_EQ(num_poisoned(), all);
}

}  // namespace
}  // namespace bz::test
