#include "kv/layout.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/math.h"
#include "kv/rules.h"

namespace bz::kv {
namespace {

size_t table_of(const Layout& layout, size_t group) {
  return static_cast<size_t>(table_of(layout.groups[group].spec, GroupId(static_cast<int32_t>(group))).value());
}

// Places the planes of a group's layers one after another from `start` on; fills everything but the stride.
GroupLayout place_group(GroupId id, const GroupSpec& spec, const std::vector<LayerSpec>& layers, int64_t start) {
  GroupLayout group{spec, {}, 0};
  for (int32_t i : spec.layers) {
    const LayerSpec& layer = layers[static_cast<size_t>(i)];
    const int64_t k = start + group.used_bytes, k_bytes = layer.entry_bytes[0] * spec.block_size;
    group.layers.push_back({layer.layer, i, PageView{0, k, layer.entry_bytes[0], spec.block_size, id},
                            PageView{0, k + round_up(k_bytes, kPageAlign), layer.entry_bytes[1], spec.block_size, id},
                            page_bytes(layer, spec.block_size)});
    group.used_bytes += slab_bytes(layer, spec.block_size);
  }
  return group;
}

// What a request of so many tokens takes of one table's blocks, and fills with the entries of all its groups.
RequestBytes bytes_of_table(const Layout& layout, size_t table, int32_t num_tokens, int32_t num_spec) {
  const RowProgress row{num_tokens, num_tokens, 0};
  const Columns c = columns_for(layout.groups[table].spec, row, num_spec);
  RequestBytes bytes{(c.width - c.first - sink_columns(layout.groups[table].spec)) * layout.block_stride, 0};
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupSpec& spec = layout.groups[g].spec;
    if (table_of(layout, g) != table) continue;
    int64_t entries = spec.block_size;  // a ring; of a state: 1
    if (spec.kind == CacheKind::kState) entries = 1 + num_spec;
    if (tokens_per_block(spec) > 0)
      entries = (num_tokens - first_needed(spec, num_tokens)) / spec.ratio / spec.cp_world;
    for (const LayerPages& p : layout.groups[g].layers) bytes.used += entries * (p.k.entry_bytes + p.v.entry_bytes);
  }
  return bytes;
}

// Where the waste of a typical request lies: the tables that cause a tenth of it or more.
void explain_waste(Layout& layout, const RequestBytes& typical, const LayoutRequest& request) {
  const int64_t waste = typical.taken - typical.used;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (table_of(layout, g) != g) continue;
    const RequestBytes b = bytes_of_table(layout, g, request.reference_tokens, request.num_spec);
    if ((b.taken - b.used) * 10 < waste) continue;
    layout.notes.push_back(fmt::format(
        "{:.0f} % of the waste is group {}'s ({}): {} slabs for {} bytes; a table takes whole slabs, and the largest "
        "one sets their size",
        100.0 * static_cast<double>(b.taken - b.used) / static_cast<double>(waste), g,
        cache_kind_name(layout.groups[g].spec.kind), b.taken / layout.block_stride, b.used));
  }
  const int32_t longer = 16 * request.reference_tokens;
  layout.notes.push_back(fmt::format("of {} tokens it would be {:.1f} %{}", longer,
                                     100 * bytes_of_request(layout, longer, request.num_spec).waste(),
                                     request.block_size > 0 ? "; try it without --block-size" : ""));
}

void add_notes(Layout& layout, const LayoutRequest& request) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupLayout& group = layout.groups[g];
    const int32_t tokens = tokens_per_block(group.spec);
    int64_t page = kGoodPageBytes;
    for (const LayerPages& p : group.layers) page = std::min(page, p.page_bytes);
    if (tokens > 0 && page < kGoodPageBytes)
      layout.notes.push_back(fmt::format("group {}: a layer's page is {} bytes, below {}, in blocks of {} tokens", g,
                                         page, kGoodPageBytes, tokens));
    if (tokens > kMaxPlainBlockTokens && group.spec.table_of == kOwnTable)
      layout.notes.push_back(
          fmt::format("group {}: blocks of {} tokens, {}", g, tokens,
                      request.block_size > 0 ? "as asked for" : "so that they fill the slabs that other groups need"));
  }
  const RequestBytes typical = bytes_of_request(layout, request.reference_tokens, request.num_spec);
  if (typical.waste() > kExplainedWaste) explain_waste(layout, typical, request);
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

Result<Layout> make_layout(const LayoutRequest& request) {
  if (request.granule < kPageAlign || !is_pow2(request.granule))
    return invalid_argument("kv layout: granule {} is not a power of two of at least {} bytes", request.granule,
                            kPageAlign);
  BZ_ASSIGN(const std::vector<GroupSpec> specs, choose_groups(request));
  Layout layout;
  layout.granule = request.granule;
  for (const GroupSpec& spec : specs) {
    const GroupId id(static_cast<int32_t>(layout.groups.size()));
    const int64_t start = spec.table_of == kOwnTable ? 0 : table_bytes(layout, static_cast<size_t>(spec.table_of));
    layout.groups.push_back(place_group(id, spec, request.layers, start));
    layout.block_stride = std::max(layout.block_stride, start + layout.groups.back().used_bytes);
  }
  for (GroupLayout& group : layout.groups) {
    for (LayerPages& pages : group.layers) pages.k.block_stride = pages.v.block_stride = layout.block_stride;
  }
  BZ_TRY(place_blocks(layout, request.cache_bytes));
  add_notes(layout, request);
  BZ_CHECK_EQ(layout.block_stride % kPageAlign, 0);
  BZ_CHECK_LE(layout.total_bytes, request.cache_bytes);
  return layout;
}

const LayerPages& pages_of_spec(const Layout& layout, int32_t spec) {
  for (const GroupLayout& group : layout.groups) {
    for (const LayerPages& pages : group.layers) {
      if (pages.spec == spec) return pages;
    }
  }
  BZ_CHECK_MSG(false, "the layout has no spec {}", spec);
  std::abort();
}

int64_t table_bytes(const Layout& layout, size_t table) {
  int64_t bytes = 0;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (table_of(layout, g) == table) bytes += layout.groups[g].used_bytes;
  }
  return bytes;
}

RequestBytes bytes_of_request(const Layout& layout, int32_t num_tokens, int32_t num_spec) {
  BZ_CHECK_GE(num_tokens, 1);
  RequestBytes bytes;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (table_of(layout, g) != g) continue;
    const RequestBytes more = bytes_of_table(layout, g, num_tokens, num_spec);
    bytes.taken += more.taken;
    bytes.used += more.used;
  }
  BZ_CHECK_LE(bytes.used, bytes.taken);
  return bytes;
}

void check_same_group(const GroupView& tables, const PageView& pages) {
  BZ_CHECK_EQ(tables.group, pages.group);
  BZ_CHECK_EQ(tables.block_size, pages.block_size);
}

}  // namespace bz::kv
