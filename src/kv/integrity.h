// The integrity check: every invariant of the cache core, looked at from outside. Slow; run when idle, in tests, after
// a fault. It reads the facade's public state only and trusts none of its counters.
#pragma once

#include <string>
#include <vector>

#include "kv/cache_manager.h"

namespace bz::kv {

// One line per violation; empty: all is well.
std::vector<std::string> check_integrity(const CacheManager& manager);

}  // namespace bz::kv
