#include "heap_count.h"

#include <cstdlib>
#include <new>

namespace {
int64_t g_num = 0;  // the benchmarks that ask have one thread
}

void* operator new(std::size_t bytes) {
  ++g_num;
  if (void* p = std::malloc(bytes)) return p;
  std::abort();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace bz::bench {

int64_t num_heap_allocations() { return g_num; }

}  // namespace bz::bench
