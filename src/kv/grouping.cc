#include "kv/grouping.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kv/rules.h"

namespace bz::kv {
namespace {

// One way to place the layers of a kind: `splits` groups with blocks of `block_size` entries.
struct Option {
  int32_t splits = 0;
  int32_t block_size = 0;
  int64_t slab = 0;   // bytes, of the largest of its groups
  double blocks = 0;  // of the typical request, all its groups
  double weight = 1;  // what a byte of it counts: more for small pages and very large blocks
};

struct LayerClass {
  std::vector<int32_t> members;  // indices into the request's layers
  std::vector<Option> options;
};

bool share_a_table(const LayerSpec& a, const LayerSpec& b) {
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

GroupSpec group_of(const LayerSpec& spec, int32_t block_size) {
  GroupSpec group;
  group.kind = spec.kind;
  group.block_size = block_size;
  group.window = spec.window;
  group.ratio = spec.ratio;
  group.snapshot = spec.snapshot;
  group.sink_tokens = spec.sink_tokens;
  group.zeroed = spec.zeroed;
  return group;
}

// Blocks of one group of a typical request; the last one is half full on average.
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
double weight_of(const std::vector<LayerSpec>& layers, const LayerClass& c, const GroupSpec& group) {
  if (tokens_per_block(group) == 0) return 1;
  double smallest = static_cast<double>(kGoodPageBytes);
  for (int32_t i : c.members) {
    const double page = static_cast<double>(layers[static_cast<size_t>(i)].entry_bytes[0] +
                                            layers[static_cast<size_t>(i)].entry_bytes[1]) *
                        group.block_size;
    smallest = std::min(smallest, page);
  }
  const double lost = std::min(0.6, 0.11 * std::log2(static_cast<double>(kGoodPageBytes) / smallest));
  const double large = std::max(0.0, std::log2(static_cast<double>(tokens_per_block(group)) / kMaxPlainBlockTokens));
  return 1 + 0.5 * lost + 0.05 * large;
}

std::vector<int32_t> block_sizes(const LayerSpec& spec, int32_t wanted) {
  if (spec.kind == CacheKind::kRing) return {spec.capacity};
  if (spec.kind == CacheKind::kState) return {1};
  if (wanted > 0) return {std::max(1, wanted / spec.ratio)};
  std::vector<int32_t> sizes;
  for (int32_t tokens = kMinBlockTokens; tokens <= kMaxBlockTokens; tokens *= 2) {
    if (tokens >= spec.ratio && tokens % spec.ratio == 0) sizes.push_back(tokens / spec.ratio);
  }
  if (sizes.empty()) sizes.push_back(kMinBlockTokens);
  return sizes;
}

std::vector<int32_t> every_nth(const std::vector<int32_t>& all, int32_t n, int32_t from) {
  std::vector<int32_t> some;
  for (auto i = static_cast<size_t>(from); i < all.size(); i += static_cast<size_t>(n)) some.push_back(all[i]);
  return some;
}

void list_options(const LayoutRequest& request, LayerClass& c) {
  const LayerSpec& first = request.layers[static_cast<size_t>(c.members[0])];
  for (int32_t splits = 1; splits <= std::min<int32_t>(kMaxGroups, static_cast<int32_t>(c.members.size())); ++splits) {
    for (int32_t size : block_sizes(first, request.block_size)) {
      const GroupSpec group = group_of(first, size);
      Option o{splits, size, 0, typical_blocks(group, request) * splits, weight_of(request.layers, c, group)};
      for (int32_t i = 0; i < splits; ++i)
        o.slab = std::max(o.slab, slab_bytes(request.layers, every_nth(c.members, splits, i), size));
      c.options.push_back(o);
    }
  }
}

// With slabs of `stride` bytes: the best option per class, at most kMaxGroups groups in all. best[n]: cost with n
// groups.
double best_for_stride(const std::vector<LayerClass>& classes, int64_t stride, std::vector<Option>& chosen) {
  struct State {
    double cost = std::numeric_limits<double>::infinity();
    std::vector<Option> chosen;
  };
  std::vector<State> best(kMaxGroups + 1);
  best[0].cost = 0;
  for (const LayerClass& c : classes) {
    std::vector<State> next(kMaxGroups + 1);
    for (int32_t n = 0; n <= kMaxGroups; ++n) {
      for (const Option& o : c.options) {
        const int32_t groups = n + o.splits;
        if (o.slab > stride || groups > kMaxGroups) continue;
        // A group more costs a table: half a per cent.
        const double cost = best[static_cast<size_t>(n)].cost +
                            o.blocks * static_cast<double>(stride) * o.weight * (1 + 0.005 * (o.splits - 1));
        State& s = next[static_cast<size_t>(groups)];
        if (cost >= s.cost) continue;
        s = {cost, best[static_cast<size_t>(n)].chosen};
        s.chosen.push_back(o);
      }
    }
    best = std::move(next);
  }
  const auto it =
      std::min_element(best.begin(), best.end(), [](const State& a, const State& b) { return a.cost < b.cost; });
  chosen = it->chosen;
  return it->cost;
}

}  // namespace

int64_t slab_bytes(const std::vector<LayerSpec>& layers, const std::vector<int32_t>& members, int32_t block_size) {
  BZ_CHECK(!members.empty());
  BZ_CHECK_GT(block_size, 0);
  int64_t bytes = 0;
  for (int32_t i : members) {
    const LayerSpec& spec = layers[static_cast<size_t>(i)];
    const int64_t start = bytes;
    for (int64_t entry : spec.entry_bytes) bytes = round_up(bytes + entry * block_size, kPageAlign);
    bytes = round_up(start + round_up<int64_t>(bytes - start, spec.page_multiple), kPageAlign);
  }
  return bytes;
}

Result<std::vector<GroupSpec>> choose_groups(const LayoutRequest& request) {
  if (request.layers.empty()) return invalid_argument("kv layout: the model has no cache layers");
  if (request.block_size < 0 || request.block_size > 1 << 20)
    return invalid_argument("kv layout: block size {} is not in [1, 1048576]", request.block_size);
  std::vector<LayerClass> classes;
  for (size_t i = 0; i < request.layers.size(); ++i) {
    BZ_TRY(check_spec(request.layers[i]));
    const auto same = [&](const LayerClass& c) {
      return share_a_table(request.layers[static_cast<size_t>(c.members[0])], request.layers[i]);
    };
    auto it = std::find_if(classes.begin(), classes.end(), same);
    if (it == classes.end()) it = classes.insert(it, LayerClass{});
    it->members.push_back(static_cast<int32_t>(i));
  }
  if (classes.size() > kMaxGroups)
    return invalid_argument("kv layout: the model needs {} cache groups, at most {} are possible", classes.size(),
                            kMaxGroups);
  std::vector<int64_t> strides;
  for (LayerClass& c : classes) {
    list_options(request, c);
    for (const Option& o : c.options) strides.push_back(o.slab);
  }
  std::sort(strides.begin(), strides.end());
  strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
  double best = std::numeric_limits<double>::infinity();
  std::vector<Option> chosen;
  for (int64_t stride : strides) {
    std::vector<Option> options;
    const double cost = best_for_stride(classes, stride, options);
    if (cost >= best) continue;
    best = cost;
    chosen = std::move(options);
  }
  BZ_CHECK_EQ(chosen.size(), classes.size());
  std::vector<GroupSpec> groups;
  for (size_t c = 0; c < classes.size(); ++c) {
    for (int32_t i = 0; i < chosen[c].splits; ++i) {
      groups.push_back(group_of(request.layers[static_cast<size_t>(classes[c].members[0])], chosen[c].block_size));
      groups.back().layers = every_nth(classes[c].members, chosen[c].splits, i);
    }
  }
  return groups;
}

}  // namespace bz::kv
