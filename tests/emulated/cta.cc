#include "emulated/cta.h"

#include <ucontext.h>

#include <memory>
#include <vector>

#include "base/check.h"

namespace bz::test {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr unsigned kWarp = 32;

enum class Fate { kRuns, kMeetsWarp, kMeetsCta, kEnded };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  Fate fate;
  uint64_t told;
};

struct Cta {
  ucontext_t scheduler;
  std::vector<Fiber> fibers;  // kept from cta to cta
  unsigned threads = 0;
  const std::function<void()>* body = nullptr;
};
Cta g_cta;

void leave(Fate fate) {
  Fiber& mine = g_cta.fibers[thread_index.x];
  mine.fate = fate;
  BZ_CHECK_EQ(swapcontext(&mine.context, &g_cta.scheduler), 0);
}

void begin() {
  (*g_cta.body)();
  leave(Fate::kEnded);
}

void start(unsigned thread) {
  Fiber& f = g_cta.fibers[thread];
  BZ_CHECK_EQ(getcontext(&f.context), 0);
  f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = kStackBytes;
  f.context.uc_link = nullptr, f.fate = Fate::kRuns;
  makecontext(&f.context, begin, 0);
}

// Whether all of [first, end) that have not ended have the fate; they run again then.
bool release(unsigned first, unsigned end, Fate fate) {
  bool any = false;
  for (unsigned t = first; t < end; ++t) {
    const Fate f = g_cta.fibers[t].fate;
    if (f != fate && f != Fate::kEnded) return false;
    any |= f == fate;
  }
  for (unsigned t = first; t < end; ++t) {
    if (g_cta.fibers[t].fate == fate) g_cta.fibers[t].fate = Fate::kRuns;
  }
  return any;
}

bool release_some() {
  bool any = release(0, g_cta.threads, Fate::kMeetsCta);
  for (unsigned w = 0; w < g_cta.threads; w += kWarp) {
    any |= release(w, std::min(w + kWarp, g_cta.threads), Fate::kMeetsWarp);
  }
  return any;
}

void run_cta(bool last_first) {
  for (unsigned t = 0; t < g_cta.threads; ++t) start(t);
  for (;;) {
    unsigned ended = 0;
    for (unsigned i = 0; i < g_cta.threads; ++i) {
      const unsigned t = last_first ? g_cta.threads - 1 - i : i;
      Fiber& f = g_cta.fibers[t];
      thread_index.x = t;
      if (f.fate == Fate::kRuns) BZ_CHECK_EQ(swapcontext(&g_cta.scheduler, &f.context), 0);
      ended += f.fate == Fate::kEnded;
    }
    if (ended == g_cta.threads) return;
    BZ_CHECK_MSG(release_some(), "threads of cta {}, {}, {} wait for others that never come", block_index.x,
                 block_index.y, block_index.z);
  }
}

}  // namespace

void run_ctas(const Place& grid, unsigned threads, const std::function<void()>& body) {
  static bool last_first = false;
  if (g_cta.fibers.size() < threads) g_cta.fibers.resize(threads);
  g_cta.threads = threads, g_cta.body = &body;
  grid_size = grid;
  const unsigned ctas = grid.x * grid.y * grid.z;
  for (unsigned i = 0; i < ctas; ++i) {
    const unsigned c = last_first ? ctas - 1 - i : i;
    block_index = {c % grid.x, c / grid.x % grid.y, c / grid.x / grid.y};
    run_cta(last_first);
  }
  last_first = !last_first;
}

void meet_warp() { leave(Fate::kMeetsWarp); }
void meet_cta() { leave(Fate::kMeetsCta); }
uint64_t& told(unsigned thread) { return g_cta.fibers[thread].told; }

}  // namespace bz::test
