// Caches as the released models mix them, made small: every kind, alone and beside others.
#pragma once

#include <string_view>
#include <vector>

#include "kv/layout.h"

namespace bz::sim {

struct CacheMix {
  std::string_view name;
  std::vector<kv::GroupSpec> groups;
};
const std::vector<CacheMix>& cache_mixes();

// One layer a group; a slab has room for the shadow's entries.
kv::Layout layout_of(const CacheMix& mix, int32_t num_blocks);

}  // namespace bz::sim
