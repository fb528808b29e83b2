// Grouping: which layers share a block table, and how many entries a block of theirs holds. Pure and small: it tries
// everything sensible and takes what costs a typical request least.
//
// All tables draw slabs of one stride from one pool, so a table whose pages fill little of a slab wastes the rest. The
// layers of one kind may be split over several tables, kinds whose blocks hold the same tokens may share one
// (can_share_table), and block sizes differ per table, until the slabs are alike.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kv/spec.h"

namespace bz::kv {

inline constexpr int64_t kPageAlign = 128;        // bytes, KV-5
inline constexpr int64_t kGoodPageBytes = 32768;  // below it reads of scattered blocks lose bandwidth
inline constexpr int32_t kMinBlockTokens = 16;
inline constexpr int32_t kMaxPlainBlockTokens = 128;  // larger blocks are explained: a request wastes half a block
inline constexpr int32_t kMaxBlockTokens = 2048;

struct LayoutRequest {
  std::vector<LayerSpec> layers;
  int64_t cache_bytes = 0;          // budget
  int64_t granule = 4096;           // bytes, the guard's protection unit: 4 KiB (CPU) or 2 MiB (huge pages, CUDA)
  int32_t block_size = 0;           // tokens in a block of attention layers; 0: chosen per group
  int32_t num_spec = 0;             // tokens speculated per step: a state needs as many more blocks
  int32_t reference_tokens = 8192;  // of the typical request that the choice is made for
};

// A layer's page: plane 0, then plane 1; and what it takes of a slab.
int64_t page_bytes(const LayerSpec& layer, int32_t block_size);
inline int64_t slab_bytes(const LayerSpec& layer, int32_t block_size) {
  return round_up(page_bytes(layer, block_size), kPageAlign);
}

// Groups with a table of their own come first, then those that read another's. Fails when the specs make no sense or
// need more than kMaxGroups groups.
Result<std::vector<GroupSpec>> choose_groups(const LayoutRequest& request);

}  // namespace bz::kv
