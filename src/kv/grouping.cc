#include "kv/grouping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kv/rules.h"

namespace bz::kv {
namespace {

// Layers whose blocks are one another's: all of a group, or of several that share tables, kind after kind. Indices into
// the request's layers.
using Members = std::vector<int32_t>;

// One way to place such a class.
struct Option {
  std::vector<GroupSpec> groups;  // the first of each table owns it; table_of counts within the class
  int64_t slab = 0;               // bytes, of the fullest table
  double blocks = 0;              // of the typical request, in all tables; more for small pages and very large blocks
};

bool same_group(const LayerSpec& a, const LayerSpec& b) {
  return a.kind == b.kind && a.window == b.window && a.ratio == b.ratio && a.capacity == b.capacity &&
         a.snapshot == b.snapshot && a.sink_tokens == b.sink_tokens && a.zeroed == b.zeroed;
}

Status check_spec(const LayerSpec& spec) {
  const int64_t entry = spec.entry_bytes[0] + spec.entry_bytes[1];
  if (spec.entry_bytes[0] <= 0 || spec.entry_bytes[1] < 0 || entry > int64_t{1} << 30)
    return invalid_argument("kv layout: layer {} has {} + {} bytes in an entry", spec.layer, spec.entry_bytes[0],
                            spec.entry_bytes[1]);
  const bool windowed = spec.kind == CacheKind::kSlidingWindow || spec.kind == CacheKind::kChunkedLocal;
  if (windowed && spec.window <= 0)
    return invalid_argument("kv layout: layer {} has a window of {} tokens", spec.layer, spec.window);
  if (spec.ratio < 1 || (spec.kind == CacheKind::kRing && spec.capacity < spec.ratio))
    return invalid_argument("kv layout: layer {} pools {} tokens in a ring of {}", spec.layer, spec.ratio,
                            spec.capacity);
  if (spec.sink_tokens < 0 || spec.page_multiple < 1)
    return invalid_argument("kv layout: layer {} has {} sink tokens and pages in multiples of {} bytes", spec.layer,
                            spec.sink_tokens, spec.page_multiple);
  return ok_status();
}

GroupSpec group_of(const LayerSpec& spec, int32_t block_tokens) {
  GroupSpec group;
  group.kind = spec.kind;
  group.block_size = std::max(1, block_tokens / spec.ratio);
  if (spec.kind == CacheKind::kRing) group.block_size = spec.capacity;
  if (spec.kind == CacheKind::kState) group.block_size = 1;
  group.window = spec.window;
  group.ratio = spec.ratio;
  group.snapshot = spec.snapshot;
  group.sink_tokens = spec.sink_tokens;
  group.zeroed = spec.zeroed;
  return group;
}

// Blocks of one table of a typical request; the last one is half full on average.
double typical_blocks(const GroupSpec& group, const LayoutRequest& request) {
  if (group.kind == CacheKind::kRing) return 1;
  if (group.kind == CacheKind::kState) return 1 + request.num_spec;
  const double per_block = tokens_per_block(group) > 0 ? tokens_per_block(group) : group.block_size;
  double tokens = request.reference_tokens;
  if (slot_form(group.kind) == SlotForm::kWindowed) tokens = std::min<double>(tokens, group.window + per_block / 2);
  return std::max(1.0, tokens / per_block + 0.5);
}

// What reading such pages costs, from measured bandwidths of scattered blocks: 0.67 of the full one at 4 KiB, 0.89 at
// 16 KiB, all of it at 32 KiB; and what blocks of more than 128 tokens cost in unshared, half-filled blocks.
double weight_of(const GroupSpec& group, int64_t page) {
  if (tokens_per_block(group) == 0) return 1;
  const double short_by = static_cast<double>(kGoodPageBytes) / static_cast<double>(std::min(page, kGoodPageBytes));
  const double lost = std::min(0.6, 0.11 * std::log2(short_by));
  const double large = std::max(0.0, std::log2(static_cast<double>(tokens_per_block(group)) / kMaxPlainBlockTokens));
  return 1 + 0.5 * lost + 0.05 * large;
}

std::vector<int32_t> block_sizes(const LayerSpec& spec, int32_t wanted) {
  if (spec.kind == CacheKind::kRing || spec.kind == CacheKind::kState) return {1};
  if (wanted > 0) return {wanted};
  std::vector<int32_t> sizes;
  for (int32_t tokens = kMinBlockTokens; tokens <= kMaxBlockTokens; tokens *= 2) {
    if (tokens % spec.ratio == 0) sizes.push_back(tokens);
  }
  if (sizes.empty()) sizes.push_back(kMinBlockTokens * spec.ratio);
  return sizes;
}

// The groups of a class over `splits` tables: its layers in order, cut where a table has had its part of the bytes.
// Empty: layers that met cannot share a table.
std::vector<GroupSpec> place_class(const std::vector<LayerSpec>& layers, const Members& members, int32_t splits,
                                   int32_t block_tokens) {
  const auto bytes_of = [&](int32_t i) {
    const LayerSpec& layer = layers[static_cast<size_t>(i)];
    return slab_bytes(layer, group_of(layer, block_tokens).block_size);
  };
  int64_t total = 0, before = 0;
  for (int32_t i : members) total += bytes_of(i);
  std::vector<GroupSpec> groups;
  size_t owner = 0;
  for (int64_t i = 0, last_part = -1; i < std::ssize(members); ++i) {
    const int32_t index = members[static_cast<size_t>(i)];
    const LayerSpec& layer = layers[static_cast<size_t>(index)];
    const int64_t part = (before + bytes_of(index) / 2) * splits / total;
    before += bytes_of(index);
    if (part != last_part) {
      owner = groups.size();
      groups.push_back(group_of(layer, block_tokens));
    } else if (!same_group(layer, layers[static_cast<size_t>(groups.back().layers[0])])) {
      groups.push_back(group_of(layer, block_tokens));
      if (!can_share_table(groups[owner], groups.back())) return {};
      groups.back().table_of = static_cast<int32_t>(owner);
    }
    groups.back().layers.push_back(index);
    last_part = part;
  }
  return groups;
}

std::vector<Option> list_options(const LayoutRequest& request, const Members& members) {
  std::vector<Option> options;
  const LayerSpec& first = request.layers[static_cast<size_t>(members[0])];
  for (int32_t splits = 1; splits <= std::min<int32_t>(kMaxGroups, static_cast<int32_t>(members.size())); ++splits) {
    for (int32_t size : block_sizes(first, request.block_size)) {
      Option o{place_class(request.layers, members, splits, size)};
      if (o.groups.empty()) continue;
      int64_t table = 0, total = 0;
      double weighted = 0;
      for (const GroupSpec& group : o.groups) {
        if (group.table_of == kOwnTable) {
          table = 0;
          o.blocks += typical_blocks(group, request);
        }
        for (int32_t i : group.layers) {
          const LayerSpec& layer = request.layers[static_cast<size_t>(i)];
          const int64_t bytes = slab_bytes(layer, group.block_size);
          weighted += weight_of(group, page_bytes(layer, group.block_size)) * static_cast<double>(bytes);
          table += bytes;
          total += bytes;
        }
        o.slab = std::max(o.slab, table);
      }
      o.blocks *= weighted / static_cast<double>(total);
      options.push_back(std::move(o));
    }
  }
  return options;
}

struct Choice {
  double cost = std::numeric_limits<double>::infinity();
  std::vector<const Option*> options;  // by class
};

// With slabs of `stride` bytes: the best option per class, at most kMaxGroups groups in all. best[n]: with n groups.
Choice best_for_stride(const std::vector<std::vector<Option>>& classes, int64_t stride) {
  std::vector<Choice> best(kMaxGroups + 1);
  best[0].cost = 0;
  for (const std::vector<Option>& options : classes) {
    std::vector<Choice> next(kMaxGroups + 1);
    for (size_t n = 0; n < best.size(); ++n) {
      for (const Option& o : options) {
        const size_t groups = n + o.groups.size();
        if (o.slab > stride || groups > kMaxGroups) continue;
        // A group more costs a table: half a per cent.
        const double more = 1 + 0.005 * static_cast<double>(o.groups.size() - 1);
        const double cost = best[n].cost + o.blocks * static_cast<double>(stride) * more;
        if (cost >= next[groups].cost) continue;
        next[groups] = {cost, best[n].options};
        next[groups].options.push_back(&o);
      }
    }
    best = std::move(next);
  }
  return *std::min_element(best.begin(), best.end(), [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
}

// The options of each class, when the kinds that can share tables do (one flag for pooled entries, one for rings) or
// do not.
std::vector<std::vector<Option>> options_by_class(const LayoutRequest& request, const std::vector<Members>& kinds,
                                                  bool pooled_share, bool rings_share) {
  const auto spec = [&](const Members& m) { return request.layers[static_cast<size_t>(m[0])]; };
  std::vector<Members> classes;
  for (const Members& kind : kinds) {
    const GroupSpec group = group_of(spec(kind), kMaxBlockTokens);
    const bool shares = group.kind == CacheKind::kRing ? rings_share : pooled_share;
    auto it = std::find_if(classes.begin(), classes.end(), [&](const Members& c) {
      return shares && can_share_table(group_of(spec(c), kMaxBlockTokens), group);
    });
    if (it == classes.end()) it = classes.insert(it, Members{});
    it->insert(it->end(), kind.begin(), kind.end());
  }
  std::vector<std::vector<Option>> options;
  for (const Members& c : classes) options.push_back(list_options(request, c));
  return options;
}

// Layers of one kind each; a kind that may own a table comes before those that may read it.
Result<std::vector<Members>> kinds_of(const LayoutRequest& request) {
  std::vector<Members> kinds;
  const auto spec = [&](const Members& m) { return request.layers[static_cast<size_t>(m[0])]; };
  for (size_t i = 0; i < request.layers.size(); ++i) {
    BZ_TRY(check_spec(request.layers[i]));
    auto it = std::find_if(kinds.begin(), kinds.end(),
                           [&](const Members& m) { return same_group(spec(m), request.layers[i]); });
    if (it == kinds.end()) it = kinds.insert(it, Members{});
    it->push_back(static_cast<int32_t>(i));
  }
  const auto rank = [&](const Members& m) {
    const LayerSpec& s = spec(m);
    if (s.kind == CacheKind::kRing) return s.snapshot ? 1 : 2;
    return s.kind == CacheKind::kCompressed ? s.ratio : 0;
  };
  std::stable_sort(kinds.begin(), kinds.end(), [&](const Members& a, const Members& b) { return rank(a) < rank(b); });
  return kinds;
}

// All groups: those with a table of their own first.
std::vector<GroupSpec> gather(const Choice& choice) {
  std::vector<GroupSpec> owners, readers;
  for (const Option* option : choice.options) {
    for (const GroupSpec& group : option->groups) {
      if (group.table_of == kOwnTable) {
        owners.push_back(group);
      } else {
        readers.push_back(group);
        readers.back().table_of = static_cast<int32_t>(owners.size()) - 1;
      }
    }
  }
  owners.insert(owners.end(), readers.begin(), readers.end());
  return owners;
}

}  // namespace

int64_t page_bytes(const LayerSpec& layer, int32_t block_size) {
  int64_t bytes = 0;
  for (int64_t entry : layer.entry_bytes) bytes = round_up(bytes + entry * block_size, kPageAlign);
  return round_up<int64_t>(bytes, layer.page_multiple);
}

Result<std::vector<GroupSpec>> choose_groups(const LayoutRequest& request) {
  if (request.layers.empty()) return invalid_argument("kv layout: the model has no cache layers");
  if (request.block_size < 0 || request.block_size > 1 << 20)
    return invalid_argument("kv layout: block size {} is not in [1, 1048576]", request.block_size);
  BZ_ASSIGN(const std::vector<Members> kinds, kinds_of(request));
  if (kinds.size() > kMaxGroups)
    return invalid_argument("kv layout: the model needs {} cache groups, at most {} are possible", kinds.size(),
                            kMaxGroups);
  double best = std::numeric_limits<double>::infinity();
  std::vector<GroupSpec> groups;
  for (int sharing = 0; sharing < 4; ++sharing) {
    const auto classes = options_by_class(request, kinds, (sharing & 1) != 0, (sharing & 2) != 0);
    std::set<int64_t> strides;
    for (const std::vector<Option>& options : classes) {
      for (const Option& o : options) strides.insert(o.slab);
    }
    for (int64_t stride : strides) {
      const Choice choice = best_for_stride(classes, stride);
      if (choice.cost >= best) continue;
      best = choice.cost;
      groups = gather(choice);
    }
  }
  BZ_CHECK(!groups.empty());
  return groups;
}

}  // namespace bz::kv
