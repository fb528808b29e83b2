#include "sim/cache_mixes.h"

namespace bz::sim {
namespace {

using kv::CacheKind;
using kv::GroupSpec;

GroupSpec group(CacheKind kind, int32_t block_size) {
  GroupSpec g;
  g.kind = kind;
  g.block_size = block_size;
  return g;
}
GroupSpec full(int32_t block_size) { return group(CacheKind::kFull, block_size); }
GroupSpec window(CacheKind kind, int32_t block_size, int32_t tokens) {
  GroupSpec g = group(kind, block_size);
  g.window = tokens;
  return g;
}
GroupSpec compressed(int32_t ratio, int32_t block_size) {
  GroupSpec g = group(CacheKind::kCompressed, block_size);
  g.ratio = ratio;
  return g;
}
GroupSpec ring(int32_t ratio, int32_t capacity, bool overlap) {
  GroupSpec g = group(CacheKind::kRing, capacity);
  g.ratio = ratio;
  g.snapshot = overlap;
  return g;
}
GroupSpec state() {
  GroupSpec g = group(CacheKind::kState, 1);
  g.snapshot = true;
  return g;
}
GroupSpec sink(int32_t block_size, int32_t tokens) {
  GroupSpec g = group(CacheKind::kSink, block_size);
  g.sink_tokens = tokens;
  return g;
}
GroupSpec context_parallel(int32_t block_size, int32_t rank) {
  GroupSpec g = full(block_size);
  g.cp_world = 2;
  g.cp_rank = rank;
  g.cp_interleave = 2;
  return g;
}

}  // namespace

const std::vector<CacheMix>& cache_mixes() {
  static const std::vector<CacheMix> kMixes = {
      {"full", {full(4)}},
      {"full and window", {full(8), window(CacheKind::kSlidingWindow, 4, 6)}},
      {"full and chunked local", {full(4), window(CacheKind::kChunkedLocal, 4, 8)}},
      {"window, compressed, ring",
       {window(CacheKind::kSlidingWindow, 4, 6), compressed(2, 4), compressed(1, 4), ring(2, 8, false)}},
      {"window, two ratios, overlapping ring",
       {window(CacheKind::kSlidingWindow, 4, 5), compressed(4, 2), compressed(8, 1), ring(4, 9, true),
        ring(8, 9, false)}},
      {"full, pooled, tail, state", {full(8), compressed(4, 2), ring(4, 8, false), state()}},
      {"full, ring, two states", {full(8), ring(4, 8, false), state(), state()}},
      {"a ring that does not divide the blocks", {full(3), ring(2, 4, false)}},
      // Without an encoder the cross group stays empty beside the others.
      {"sink and cross", {sink(4, 6), group(CacheKind::kCross, 4)}},
      {"context parallel", {context_parallel(4, 0), context_parallel(4, 1)}},
      {"every kind",
       {full(8), window(CacheKind::kSlidingWindow, 4, 6), window(CacheKind::kChunkedLocal, 4, 8), compressed(4, 2),
        ring(4, 8, false), state(), group(CacheKind::kCross, 4), sink(4, 6)}},
  };
  return kMixes;
}

kv::Layout layout_of(const CacheMix& mix, int32_t num_blocks) {
  constexpr int64_t kStride = 128;  // bytes: 16 entries of the shadow's 8
  kv::Layout layout;
  layout.block_stride = kStride;
  layout.num_blocks = num_blocks;
  for (size_t g = 0; g < mix.groups.size(); ++g) {
    const auto layer = static_cast<int32_t>(g);
    const kv::PageView page{kStride, 0, 1, mix.groups[g].block_size, kv::GroupId(layer)};
    kv::GroupLayout group;
    group.spec = mix.groups[g];
    group.spec.layers = {layer};
    group.layers = {{layer, layer, page, page, kStride}};
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

}  // namespace bz::sim
