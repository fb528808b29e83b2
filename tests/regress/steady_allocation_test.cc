// ENG-3: steady steps allocate nothing on the heap, on any thread. The whole program's operator new is counted.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "support/models.h"
#include "support/session.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
  void* p = alignment == 0 ? std::malloc(bytes)
                           : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) std::abort();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace bz::test {
namespace {

struct CountTokens final : engine::Sink {
  void on_output(const engine::Output& output) override { tokens += output.tokens.size(); }
  size_t tokens = 0;
};

class SteadyAllocation : public testing::TestWithParam<std::string> {
 protected:
  SteadyAllocation() : file_(quantized_tiny()) {}

  // Allocations of 80 decode steps of five requests, which fill several blocks each on the way.
  int64_t allocations(float temperature, int32_t in_flight, bool prefix_caching) {
    engine::LoadOptions o = test_options(file_.path());
    o.device.num_threads = 2;
    o.max_num_seqs = 8;
    o.block_size = 16;
    o.prefix_caching = prefix_caching;
    const auto model = load(o, GetParam());
    engine::EngineCore& core = model->core();
    core.set_max_in_flight(in_flight);
    const auto sink = std::make_shared<CountTokens>();
    for (uint64_t i = 1; i <= 5; ++i) {
      engine::Request r;
      r.prompt.assign(10 * i, static_cast<int32_t>(i));
      r.max_tokens = 200;
      r.ignore_eos = true;
      r.sampling.temperature = temperature;
      r.sampling.seed = i;
      core.add(engine::RequestId(i), r, sink);
    }
    for (int i = 0; i < 20; ++i) core.step();  // prefill, capture
    const size_t tokens_before = sink->tokens;
    g_allocations = 0;
    g_counting = true;
    for (int i = 0; i < 80; ++i) core.step();
    g_counting = false;
    EXPECT_EQ(sink->tokens - tokens_before, 80u * 5u);
    core.finish_all(engine::FinishReason::kCancelled);
    return g_allocations;
  }

  TemporaryModel file_;
};

TEST_P(SteadyAllocation, NoneInDecodeSteps) {
  EXPECT_EQ(allocations(0.0f, 1, false), 0);
  EXPECT_EQ(allocations(0.0f, 2, true), 0);
  EXPECT_EQ(allocations(0.8f, 2, true), 0);
}

TEST(AllocationHook, CountsWhatAnyoneAllocates) {
  g_allocations = 0;
  g_counting = true;
  auto p = std::make_unique<std::vector<int>>(100);
  g_counting = false;
  EXPECT_EQ(g_allocations, 2);
  EXPECT_EQ(p->size(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Isa, SteadyAllocation, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
