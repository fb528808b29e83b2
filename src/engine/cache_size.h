// How large the KV cache is where nobody said it and the device knows what it has left: most of that, but no more than
// can be in use at once.
#pragma once

#include <cstdint>

#include "kv/cache_manager.h"
#include "kv/layout.h"

namespace bz::engine {

// Of the memory that is free beside weights and buffers. The rest is for graphs, which are recorded later, and for what
// a driver takes without a word.
inline constexpr double kCacheShare = 0.9;
// What stays free when a request of the model's length gets more than the share.
inline constexpr int64_t kLeftFree = int64_t{1} << 30;

// The budget to make the layout of: whole granules, and too few for any layout where nearly nothing is free.
// layout: of the same layers and any budget; only what does not depend on the budget is read. config: its rows and
// their length are what the cache is for; its number of blocks is not read.
int64_t default_cache_bytes(const kv::Layout& layout, const kv::CacheConfig& config, int64_t free_bytes);

}  // namespace bz::engine
