#include "kv/layout.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/math.h"

namespace bz::kv {
namespace {

int64_t entry_bytes(const LayerSpec& spec) { return spec.entry_bytes[0] + spec.entry_bytes[1]; }

bool share_a_table(const LayerSpec& a, const LayerSpec& b) {
  return a.kind == b.kind && a.window == b.window && a.ratio == b.ratio && a.capacity == b.capacity &&
         a.snapshot == b.snapshot && a.sink_tokens == b.sink_tokens;
}

Status check_specs(const LayoutRequest& request) {
  if (request.layers.empty()) return invalid_argument("kv layout: the model has no cache layers");
  if (request.granule < kPageAlign || !is_pow2(request.granule))
    return invalid_argument("kv layout: granule {} is not a power of two of at least {} bytes", request.granule,
                            kPageAlign);
  if (request.block_size < 0 || request.block_size > 1 << 20)
    return invalid_argument("kv layout: block size {} is not in [1, 1048576]", request.block_size);
  for (const LayerSpec& spec : request.layers) {
    if (spec.entry_bytes[0] <= 0 || spec.entry_bytes[1] < 0 || entry_bytes(spec) > int64_t{1} << 30)
      return invalid_argument("kv layout: layer {} has {} + {} bytes in an entry", spec.layer, spec.entry_bytes[0],
                              spec.entry_bytes[1]);
    if (spec.kind == CacheKind::kSlidingWindow && spec.window <= 0)
      return invalid_argument("kv layout: layer {} has a window of {} tokens", spec.layer, spec.window);
  }
  return ok_status();
}

std::vector<GroupSpec> make_groups(const LayoutRequest& request) {
  std::vector<GroupSpec> groups;
  for (size_t i = 0; i < request.layers.size(); ++i) {
    const LayerSpec& spec = request.layers[i];
    const auto same = [&](const GroupSpec& g) { return share_a_table(request.layers[g.layers[0]], spec); };
    auto it = std::find_if(groups.begin(), groups.end(), same);
    if (it == groups.end()) it = groups.insert(it, GroupSpec{spec.kind, request.block_size, spec.window, {}});
    it->layers.push_back(static_cast<int32_t>(i));
  }
  for (GroupSpec& group : groups) {
    std::vector<LayerSpec> members;
    for (int32_t i : group.layers) members.push_back(request.layers[i]);
    if (group.block_size == 0) group.block_size = choose_block_size(members);
  }
  return groups;
}

// Places the planes of a group's layers one after another; fills everything but the stride.
GroupLayout place_group(const GroupSpec& spec, const std::vector<LayerSpec>& layers) {
  GroupLayout group{spec, {}, 0};
  for (int32_t i : spec.layers) {
    LayerPages pages{layers[i].layer, {}, {}, 0};
    const int64_t start = group.used_bytes;
    for (int plane = 0; plane < 2; ++plane) {
      PageView& view = plane == 0 ? pages.k : pages.v;
      view = PageView{0, group.used_bytes, layers[i].entry_bytes[plane], spec.block_size};
      group.used_bytes = round_up(group.used_bytes + view.entry_bytes * spec.block_size, kPageAlign);
    }
    pages.page_bytes = group.used_bytes - start;
    group.layers.push_back(pages);
  }
  return group;
}

void add_notes(Layout& layout) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupLayout& group = layout.groups[g];
    const int64_t page = group.layers[0].page_bytes;
    if (page < kGoodPageBytes)
      layout.notes.push_back(fmt::format("group {}: a layer's page is {} bytes, below {}: blocks of {} entries", g,
                                         page, kGoodPageBytes, group.spec.block_size));
    if (group.spec.block_size > kMaxAutoBlockSize)
      layout.notes.push_back(
          fmt::format("group {}: blocks of {} entries were asked for; a request wastes half a block on average", g,
                      group.spec.block_size));
    const int64_t waste = layout.block_stride - group.used_bytes;
    if (waste * 10 > layout.block_stride)
      layout.notes.push_back(
          fmt::format("group {}: {} of {} bytes of its slabs are waste: another group's blocks are larger", g, waste,
                      layout.block_stride));
  }
}

// How many blocks fit, and where they end. A tail that would cost under 1 % of the blocks is rounded away.
Status place_blocks(Layout& layout, int64_t budget) {
  layout.head_bytes = round_up(layout.block_stride, layout.granule);
  int64_t usable = (budget - layout.head_bytes) / layout.block_stride;
  if (budget < layout.head_bytes || usable < 2)
    return resource_exhausted(
        "kv cache: {} bytes hold no two blocks of {} bytes beside the null block; need at least {}", budget,
        layout.block_stride, layout.head_bytes + round_up(2 * layout.block_stride, layout.granule));
  usable = std::min<int64_t>(usable, std::numeric_limits<int32_t>::max() - 1);
  const int64_t step = layout.granule / std::gcd(layout.granule, layout.block_stride);
  if (usable % step * 100 < usable) {
    usable -= usable % step;
  } else if (layout.head_bytes + round_up(usable * layout.block_stride, layout.granule) > budget) {
    usable -= std::min<int64_t>(usable - 1, ceil_div(layout.granule, layout.block_stride));
  }
  layout.num_blocks = static_cast<int32_t>(usable + 1);
  layout.body_bytes = usable * layout.block_stride;
  layout.tail_bytes = round_up(layout.body_bytes, layout.granule) - layout.body_bytes;
  layout.total_bytes = layout.head_bytes + layout.body_bytes + layout.tail_bytes;
  return ok_status();
}

}  // namespace

int32_t choose_block_size(const std::vector<LayerSpec>& layers) {
  BZ_CHECK(!layers.empty());
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const LayerSpec& spec : layers) smallest = std::min(smallest, entry_bytes(spec));
  BZ_CHECK_GT(smallest, 0);
  int32_t size = kMinBlockSize;
  while (size < kMaxAutoBlockSize && size * smallest < kGoodPageBytes) size *= 2;
  return size;
}

Result<Layout> make_layout(const LayoutRequest& request) {
  BZ_TRY(check_specs(request));
  const std::vector<GroupSpec> specs = make_groups(request);
  if (specs.size() > kMaxGroups)
    return invalid_argument("kv layout: the model needs {} cache groups, at most {} are possible", specs.size(),
                            kMaxGroups);
  Layout layout;
  layout.granule = request.granule;
  for (const GroupSpec& spec : specs) {
    layout.groups.push_back(place_group(spec, request.layers));
    layout.block_stride = std::max(layout.block_stride, layout.groups.back().used_bytes);
  }
  for (GroupLayout& group : layout.groups) {
    for (LayerPages& pages : group.layers) pages.k.block_stride = pages.v.block_stride = layout.block_stride;
  }
  BZ_TRY(place_blocks(layout, request.cache_bytes));
  add_notes(layout);
  BZ_CHECK_EQ(layout.block_stride % kPageAlign, 0);
  BZ_CHECK_LE(layout.total_bytes, request.cache_bytes);
  return layout;
}

const LayerPages& pages_of_layer(const Layout& layout, int32_t layer) {
  for (const GroupLayout& group : layout.groups) {
    for (const LayerPages& pages : group.layers) {
      if (pages.layer == layer) return pages;
    }
  }
  BZ_CHECK_MSG(false, "the layout has no layer {}", layer);
  std::abort();
}

std::string describe(const Layout& layout) {
  std::string text;
  auto out = std::back_inserter(text);
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupLayout& group = layout.groups[g];
    fmt::format_to(out, "group {}: {}, {} layers, blocks of {} entries, page {} bytes, slab {} + waste {} bytes\n", g,
                   cache_kind_name(group.spec.kind), group.layers.size(), group.spec.block_size,
                   group.layers[0].page_bytes, group.used_bytes, layout.block_stride - group.used_bytes);
  }
  fmt::format_to(out, "null block and its guard granules: {} bytes\n", layout.head_bytes);
  fmt::format_to(out, "blocks 1 to {}: {} bytes ({} each)\n", layout.num_blocks - 1, layout.body_bytes,
                 layout.block_stride);
  fmt::format_to(out, "end: {}\n",
                 layout.tail_bytes == 0 ? "on a granule" : fmt::format("canary of {} bytes", layout.tail_bytes));
  fmt::format_to(out, "total: {} bytes\n", layout.total_bytes);
  for (const std::string& note : layout.notes) fmt::format_to(out, "note: {}\n", note);
  return text;
}

}  // namespace bz::kv
