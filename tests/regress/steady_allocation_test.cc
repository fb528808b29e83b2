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
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
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

  engine::LoadOptions steady_options() const {
    engine::LoadOptions o = test_options(file_.path());
    o.device.num_threads = 2;
    o.max_num_seqs = 8;
    o.block_size = 16;
    return o;
  }
  // Five requests of different lengths.
  static std::vector<engine::Request> requests(float temperature) {
    std::vector<engine::Request> all(5);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].prompt.assign(10 * (i + 1), static_cast<int32_t>(i + 1));
      all[i].max_tokens = 500;
      all[i].ignore_eos = true;
      all[i].sampling.temperature = temperature;
      all[i].sampling.seed = i;
    }
    return all;
  }
  // Allocations of 80 decode steps, in which rows fill several blocks each.
  int64_t allocations(const engine::LoadOptions& o, const std::vector<engine::Request>& requests, int32_t in_flight) {
    const auto model = load(o, GetParam());
    engine::EngineCore& core = model->core();
    core.set_max_in_flight(in_flight);
    const auto sink = std::make_shared<CountTokens>();
    for (size_t i = 0; i < requests.size(); ++i) core.add(engine::RequestId(i + 1), requests[i], sink);
    for (int i = 0; i < 20; ++i) core.step();  // prefill, capture
    const size_t tokens_before = sink->tokens;
    g_allocations = 0;
    g_counting = true;
    for (int i = 0; i < 80; ++i) core.step();
    g_counting = false;
    EXPECT_GE(sink->tokens - tokens_before, 80u * requests.size());
    core.finish_all(engine::FinishReason::kCancelled);
    return g_allocations;
  }

  TemporaryModel file_;
};

TEST_P(SteadyAllocation, NoneInDecodeSteps) {
  engine::LoadOptions o = steady_options();
  EXPECT_EQ(allocations(o, requests(0.0f), 1), 0);
  o.prefix_caching = true;
  EXPECT_EQ(allocations(o, requests(0.0f), 2), 0);
  EXPECT_EQ(allocations(o, requests(0.8f), 2), 0);
}

TEST_P(SteadyAllocation, NoneWithPenaltiesAndLogProbabilities) {
  std::vector<engine::Request> all = requests(0.8f);
  ask_for_everything(all, 320);
  EXPECT_EQ(allocations(steady_options(), all, 2), 0);
}

TEST_P(SteadyAllocation, NoneWithSpeculation) {
  engine::LoadOptions o = steady_options();
  o.num_draft_tokens = 4;
  EXPECT_EQ(allocations(o, requests(0.0f), 2), 0);
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
