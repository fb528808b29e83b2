// Counts the heap allocations of a program that links heap_count.cc.
#pragma once

#include <cstdint>

namespace bz::bench {

int64_t num_heap_allocations();

}  // namespace bz::bench
