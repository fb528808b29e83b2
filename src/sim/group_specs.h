// Cache groups by their kind, in one line each: what simulations and tests mix (spec.h says what the fields mean).
#pragma once

#include "kv/spec.h"

namespace bz::sim {

using kv::CacheKind;
using kv::GroupSpec;

inline GroupSpec group_spec(CacheKind kind, int32_t block_size) {
  GroupSpec g;
  g.kind = kind;
  g.block_size = block_size;
  return g;
}
// kind: a sliding window or chunked local attention.
inline GroupSpec window_spec(CacheKind kind, int32_t block_size, int32_t tokens) {
  GroupSpec g = group_spec(kind, block_size);
  g.window = tokens;
  return g;
}
inline GroupSpec compressed_spec(int32_t ratio, int32_t block_size) {
  GroupSpec g = group_spec(CacheKind::kCompressed, block_size);
  g.ratio = ratio;
  return g;
}
inline GroupSpec ring_spec(int32_t ratio, int32_t capacity, bool overlap) {
  GroupSpec g = group_spec(CacheKind::kRing, capacity);
  g.ratio = ratio;
  g.snapshot = overlap;
  return g;
}
inline GroupSpec state_spec() {
  GroupSpec g = group_spec(CacheKind::kState, 1);
  g.snapshot = true;
  return g;
}
inline GroupSpec sink_spec(int32_t block_size, int32_t tokens) {
  GroupSpec g = group_spec(CacheKind::kSink, block_size);
  g.sink_tokens = tokens;
  return g;
}
// The same entries in the blocks of another group, by its table.
inline GroupSpec in_blocks_of(int32_t owner, GroupSpec g) {
  g.table_of = owner;
  return g;
}
// One rank's part of a full cache.
inline GroupSpec context_parallel_spec(int32_t block_size, int32_t world, int32_t rank, int32_t interleave) {
  GroupSpec g = group_spec(CacheKind::kFull, block_size);
  g.cp_world = world;
  g.cp_rank = rank;
  g.cp_interleave = interleave;
  return g;
}

}  // namespace bz::sim
