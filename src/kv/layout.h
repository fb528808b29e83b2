// Layout: where every byte of the cache lies. A plain value, made once at start-up, printed by `blockzero plan`.
//
//   slab of block id b = [base + b * block_stride, + block_stride); inside it, per layer of the groups that share the
//   owning table, its page: plane 0 (K) then plane 1 (V). Tables overlap inside the slab: a block is in one at a time.
//
// Invariants
//   1. block_stride and every plane's offset are multiples of 128 bytes (KV-5).
//   2. Planes of the groups of one table do not overlap and end within block_stride.
//   3. head_bytes + body_bytes + tail_bytes == total_bytes <= the budget asked for.
//   4. Block 1 starts on a granule; tail_bytes == 0, or the tail holds a canary (design: the guard).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/grouping.h"
#include "kv/slot.h"
#include "kv/spec.h"

namespace bz::kv {

struct LayerPages {
  int32_t layer = 0;  // of the model
  int32_t spec = 0;   // index into the request's layers
  PageView k{};       // plane 0
  PageView v{};       // plane 1; entry_bytes 0: there is none
  int64_t page_bytes = 0;
};

struct GroupLayout {
  GroupSpec spec;
  std::vector<LayerPages> layers;  // as spec.layers
  int64_t used_bytes = 0;          // of a slab
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

// The layout for a model. Fails when the specs make no sense or the budget holds fewer than two usable blocks.
Result<Layout> make_layout(const LayoutRequest& request);

// Bytes of a slab that the groups of one table fill; the rest is waste. table: the group that owns it.
int64_t table_bytes(const Layout& layout, size_t table);

// The pages of one of the request's specs.
const LayerPages& pages_of_spec(const Layout& layout, int32_t spec);

// Bytes that a request of so many tokens takes, and how many of them hold entries (the rest: slabs that its groups do
// not fill, and the unfilled ends of its last blocks).
struct RequestBytes {
  int64_t taken = 0;
  int64_t used = 0;
  double waste() const { return taken == 0 ? 0 : 1 - static_cast<double>(used) / static_cast<double>(taken); }
};
RequestBytes bytes_of_request(const Layout& layout, int32_t num_tokens, int32_t num_spec);

inline constexpr double kExplainedWaste = 0.1;  // above it the notes say where it lies

// A view of one group's tables and a view of another group's pages: aborts (F27).
void check_same_group(const GroupView& tables, const PageView& pages);

}  // namespace bz::kv
