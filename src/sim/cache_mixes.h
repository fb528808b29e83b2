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

// What the shadow keeps of an entry, and room for those of one group in a block; groups that share a table have parts
// of their own.
inline constexpr int64_t kEntryBytes = sizeof(uint64_t), kPartBytes = 16 * kEntryBytes;

int64_t part_offset(const kv::GroupSpec& spec, kv::GroupId group);

// One layer a group.
kv::Layout layout_of(const CacheMix& mix, int32_t num_blocks);

}  // namespace bz::sim
