// The threads of a cta as fibers of one thread of the host: each runs until it waits for its warp or its cta.
#pragma once

#include <cstdint>
#include <functional>

namespace bz::test {

struct Place {
  unsigned x = 0, y = 0, z = 0;
};
inline Place thread_index, block_index, grid_size;  // of the fiber that runs

// body, by `threads` threads of each cta of the grid, one cta after the other. In turns the first threads run first,
// and the last: what should not depend on the order shows if it does. Ends the process if threads wait for others that
// never come.
void run_ctas(const Place& grid, unsigned threads, const std::function<void()>& body);

// By a fiber: all threads of its warp, of its cta, that have not ended come here.
void meet_warp();
void meet_cta();

// A word of each thread, for what a warp's threads tell each other.
uint64_t& told(unsigned thread);

}  // namespace bz::test
