// Layout: where every byte of the cache lies. A plain value, made once at start-up, printed by `blockzero plan`.
//
//   slab of block id b = [base + b * block_stride, + block_stride); inside it, per layer of the owning group, its page:
//   plane 0 (K) then plane 1 (V). Groups overlap inside the slab: a block belongs to one group at a time.
//
// Invariants
//   1. block_stride and every plane's offset are multiples of 128 bytes (KV-5).
//   2. Planes of one group do not overlap and end within block_stride.
//   3. head_bytes + body_bytes + tail_bytes == total_bytes <= the budget asked for.
//   4. Block 1 starts on a granule; tail_bytes == 0, or the tail holds a canary (design: the guard).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/slot.h"
#include "kv/spec.h"

namespace bz::kv {

inline constexpr int64_t kPageAlign = 128;         // bytes, KV-5
inline constexpr int64_t kGoodPageBytes = 32768;   // below it reads of scattered blocks lose bandwidth
inline constexpr int32_t kMinBlockSize = 16;       // entries
inline constexpr int32_t kMaxAutoBlockSize = 128;  // larger ones waste too much of a request's last block

struct LayoutRequest {
  std::vector<LayerSpec> layers;
  int64_t cache_bytes = 0;  // budget
  int64_t granule = 4096;   // bytes, the guard's protection unit: 4 KiB (CPU) or 2 MiB (huge pages, CUDA)
  int32_t block_size = 0;   // entries; 0: chosen per group
};

struct LayerPages {
  int32_t layer = 0;
  PageView k{};  // plane 0
  PageView v{};  // plane 1; entry_bytes 0: there is none
  int64_t page_bytes = 0;
};

struct GroupLayout {
  GroupSpec spec;
  std::vector<LayerPages> layers;  // as spec.layers
  int64_t used_bytes = 0;          // of a slab; the rest of block_stride is waste while this group owns the block
};

struct Layout {
  std::vector<GroupLayout> groups;  // by GroupId
  int64_t block_stride = 0;
  int32_t num_blocks = 0;  // including block 0
  int64_t granule = 0;
  int64_t head_bytes = 0;  // guard granules that hold block 0
  int64_t body_bytes = 0;  // blocks 1 ... num_blocks - 1
  int64_t tail_bytes = 0;  // canary between the last block and the end of its granule; 0: none needed
  int64_t total_bytes = 0;
  std::vector<std::string> notes;  // what is unusual about it, for `plan`
};

// Block size of a group of such layers: the smallest power of two that makes each page good, within the limits above.
int32_t choose_block_size(const std::vector<LayerSpec>& layers);

// The layout for a model. Fails when the specs make no sense or the budget holds fewer than two usable blocks.
Result<Layout> make_layout(const LayoutRequest& request);

// The pages of a model layer. REQUIRES: the layout has it.
const LayerPages& pages_of_layer(const Layout& layout, int32_t layer);

// Several lines of text, every byte accounted for.
std::string describe(const Layout& layout);

}  // namespace bz::kv
