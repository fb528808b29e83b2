// Caches as the released models mix them, made small: every kind, alone and beside others.
#pragma once

#include <string_view>
#include <vector>

#include "kv/layout.h"

namespace bz::sim {

struct CacheMix {
  std::string_view name;
  std::vector<kv::GroupSpec> groups;

  // A hit or a fork of such a cache copies a state.
  bool copies_blocks() const;
};
const std::vector<CacheMix>& cache_mixes();

// One layer a group, pages of no size worth speaking of: the null device has no bytes.
kv::Layout layout_of(const CacheMix& mix, int32_t num_blocks);

}  // namespace bz::sim
