#include "sim/cache_mixes.h"

#include "sim/group_specs.h"

namespace bz::sim {
namespace {

GroupSpec full(int32_t block_size) { return group_spec(CacheKind::kFull, block_size); }
GroupSpec context_parallel(int32_t block_size, int32_t rank) { return context_parallel_spec(block_size, 2, rank, 2); }

}  // namespace

const std::vector<CacheMix>& cache_mixes() {
  static const std::vector<CacheMix> kMixes = {
      {"full", {full(4)}},
      {"full and window", {full(8), window_spec(CacheKind::kSlidingWindow, 4, 6)}},
      {"full and chunked local", {full(4), window_spec(CacheKind::kChunkedLocal, 4, 8)}},
      {"window, compressed, ring",
       {window_spec(CacheKind::kSlidingWindow, 4, 6), compressed_spec(2, 4), compressed_spec(1, 4),
        ring_spec(2, 8, false)}},
      {"window, two ratios, overlapping ring",
       {window_spec(CacheKind::kSlidingWindow, 4, 5), compressed_spec(4, 2), compressed_spec(8, 1),
        ring_spec(4, 9, true), ring_spec(8, 9, false)}},
      {"full, pooled, tail, state", {full(8), compressed_spec(4, 2), ring_spec(4, 8, false), state_spec()}},
      {"pooled keys beside latents, tail beside a state",
       {full(8), state_spec(), in_blocks_of(0, compressed_spec(4, 2)), in_blocks_of(1, ring_spec(4, 8, false))}},
      {"two ratios in one table, two rings in another",
       {window_spec(CacheKind::kSlidingWindow, 4, 5), ring_spec(4, 9, true), compressed_spec(4, 4),
        in_blocks_of(2, compressed_spec(8, 2)), in_blocks_of(1, ring_spec(8, 9, false))}},
      {"full, ring, two states", {full(8), ring_spec(4, 8, false), state_spec(), state_spec()}},
      {"a ring that does not divide the blocks", {full(3), ring_spec(2, 4, false)}},
      // Without an encoder the cross group stays empty beside the others.
      {"sink and cross", {sink_spec(4, 6), group_spec(CacheKind::kCross, 4)}},
      {"context parallel", {context_parallel(4, 0), context_parallel(4, 1)}},
      {"every kind",
       {full(8), window_spec(CacheKind::kSlidingWindow, 4, 6), window_spec(CacheKind::kChunkedLocal, 4, 8),
        compressed_spec(4, 2), ring_spec(4, 8, false), state_spec(), group_spec(CacheKind::kCross, 4),
        sink_spec(4, 6)}},
  };
  return kMixes;
}

int64_t part_offset(const kv::GroupSpec& spec, kv::GroupId group) {
  return spec.table_of == kv::kOwnTable ? 0 : kPartBytes * group.value();
}

kv::Layout layout_of(const CacheMix& mix, int32_t num_blocks) {
  kv::Layout layout;
  layout.block_stride = kPartBytes * static_cast<int64_t>(mix.groups.size());
  layout.num_blocks = num_blocks;
  for (size_t g = 0; g < mix.groups.size(); ++g) {
    const auto layer = static_cast<int32_t>(g);
    const kv::GroupId id(layer);
    const int64_t offset = part_offset(mix.groups[g], id);
    const kv::PageView page{layout.block_stride, offset, kEntryBytes, mix.groups[g].block_size, id};
    kv::GroupLayout group;
    group.spec = mix.groups[g];
    group.spec.layers = {layer};
    group.layers = {{layer, layer, page, page, kPartBytes}};
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

}  // namespace bz::sim
