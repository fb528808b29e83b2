// Prefix hits, publishing and forks: how rows come to share blocks (KV-1, KV-3, KV-6, RING-2).
#include <algorithm>

#include "base/mutation.h"
#include "kv/cache_manager.h"

namespace bz::kv {

std::string_view miss_reason_name(MissReason reason) {
  constexpr std::string_view names[] = {"none", "not cached", "window gone", "no snapshot", "unaligned", "draft layer"};
  return names[static_cast<size_t>(reason)];
}

// The block of a group whose content ends at a token, or null.
BlockId CacheManager::cached_block(const PrefixHit& hit, GroupId group, int32_t end_token) const {
  BZ_CHECK_GT(end_token, 0);
  BZ_CHECK_LE(end_token, static_cast<int32_t>(hit.path.size()) * index_.unit());
  return index_.block(hit.path[static_cast<size_t>(end_token / index_.unit() - 1)], group);
}

// The longest prefix of at most `limit` tokens that a group supports by itself.
int32_t CacheManager::supported_prefix(const PrefixHit& hit, GroupId group, int32_t limit, MissReason* reason) const {
  const GroupSpec& s = spec(group);
  const int32_t unit = index_.unit(), per_block = tokens_per_block(s);
  if (s.kind == CacheKind::kCross) return limit;
  if (s.snapshot) {
    *reason = MissReason::kNoSnapshot;
    int32_t n = limit / unit * unit;
    while (n > 0 && cached_block(hit, group, n) == kNullBlock) n -= unit;
    return n;
  }
  *reason = MissReason::kUnaligned;
  if (s.kind == CacheKind::kRing) return mutated(Mutation::kHitInsideRing) ? limit : limit / s.ratio * s.ratio;
  int32_t n = limit / per_block * per_block;
  if (slot_form(s.kind) == SlotForm::kWindowed) {
    for (int32_t end = n; end > first_needed(s, n) / per_block * per_block; end -= per_block) {
      if (cached_block(hit, group, end) != kNullBlock) continue;
      *reason = MissReason::kWindowGone;
      n = end - per_block;
    }
    return n;
  }
  const auto step = static_cast<size_t>(per_block / unit);  // nodes to a block
  for (size_t i = step - 1; i < static_cast<size_t>(n / unit); i += step) {
    if (index_.block(hit.path[i], group) != kNullBlock) continue;
    *reason = MissReason::kNotCached;
    return static_cast<int32_t>(i + 1 - step) * unit;
  }
  return n;
}

void CacheManager::find_prefix(const PrefixQuery& query, PrefixHit& hit) const {
  hit.path.clear();
  hit.num_tokens = 0;
  hit.groups = {};
  const auto usable = std::min<int64_t>(static_cast<int64_t>(query.tokens.size()) - 1, config_.max_seq_len - 1);
  PrefixIndex::NodeId node = PrefixIndex::kRoot;
  for (int32_t i = 0; config_.prefix_cache && (int64_t{i} + 1) * index_.unit() <= usable; ++i) {
    node = index_.find_child(node, query, i);
    if (node == PrefixIndex::kNone) break;
    hit.path.push_back(node);
  }
  const bool cut = config_.recompute_last_block && !hit.path.empty();
  if (cut) hit.path.pop_back();
  const int32_t known = static_cast<int32_t>(hit.path.size()) * index_.unit();
  int32_t common = known;
  for (int32_t g = 0; g < num_tables(); ++g) {
    MissReason reason = MissReason::kNone;
    const int32_t n = supported_prefix(hit, GroupId(g), known, &reason);
    if (n == known) {
      reason = cut                               ? MissReason::kDraftLayer
               : known + index_.unit() <= usable ? MissReason::kNotCached
                                                 : MissReason::kNone;
    }
    hit.groups[static_cast<size_t>(g)] = {n, reason};
    common = std::min(common, n);
  }
  // Each group may shorten what the others found: until none does. What grows block by block needs no second look.
  for (bool settled = false; !settled;) {
    settled = true;
    for (int32_t g = 0; g < num_tables(); ++g) {
      const GroupSpec& s = spec(GroupId(g));
      const int32_t alone = hit.groups[static_cast<size_t>(g)].num_tokens, per_block = tokens_per_block(s);
      const bool simple = per_block > 0 && slot_form(s.kind) != SlotForm::kWindowed;
      MissReason reason = MissReason::kNone;
      const int32_t n =
          simple ? std::min(common, alone) / per_block * per_block : supported_prefix(hit, GroupId(g), common, &reason);
      if (n < common) settled = false;
      common = n;
    }
  }
  hit.num_tokens = common;
  BZ_CHECK_LE(common, known);
}

bool CacheManager::can_admit(const PrefixHit& hit, int32_t num_tokens) const {
  BZ_CHECK_GE(num_tokens, 1);
  if (!can_admit() || num_tokens > config_.max_seq_len - hit.num_tokens) return false;
  int32_t needed = 0;  // new blocks, and hits that are in the free list now
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const GroupSpec& s = spec(group);
    const RowProgress want{hit.num_tokens, hit.num_tokens + num_tokens, config_.max_encoder_tokens};
    const Columns columns = columns_for(s, want, config_.num_spec);
    const int32_t sinks = sink_columns(s);
    int32_t hits = 0;
    if (s.snapshot) {
      if (hit.num_tokens > 0) needed += pool_.is_free(cached_block(hit, group, hit.num_tokens));
    } else if (tokens_per_block(s) > 0) {
      for (int32_t c = columns.first; c < hit.num_tokens / tokens_per_block(s); ++c, ++hits) {
        needed += pool_.is_free(cached_block(hit, group, (c + 1) * tokens_per_block(s)));
      }
    }
    // Of more tokens than may be in flight a window's row never holds all: they come chunk by chunk.
    needed += std::min(columns.width - columns.first, tables_.max_columns(group)) - sinks - hits;
  }
  return pool_.can_allocate(needed);
}

RowId CacheManager::admit(const PrefixHit& hit, int32_t encoder_tokens) {
  const RowId row = new_row(hit.num_tokens, encoder_tokens);
  if (hit.num_tokens == 0) return row;
  RowRecord& record = state(row);
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const GroupSpec& s = spec(group);
    const int32_t per_block = tokens_per_block(s), sinks = sink_columns(s);
    if (mutated(Mutation::kHitsTakenLate) && g > 0 && pool_.num_free() > 0)
      pool_.release(take_block(), 0);  // F23: as if group g - 1 had grown
    if (s.snapshot) {
      fill_table(group, row, {0, 1}, [&](int32_t) { return share(cached_block(hit, group, hit.num_tokens)); });
      record.frozen |= 1u << g;
    } else if (per_block > 0) {
      const int32_t first = columns_for(s, progress(row), config_.num_spec).first;
      fill_table(group, row, {first, sinks + hit.num_tokens / per_block},
                 [&](int32_t c) { return share(cached_block(hit, group, (c - sinks + 1) * per_block)); });
    }
  }
  record.node = hit.path[static_cast<size_t>(hit.num_tokens / index_.unit() - 1)];
  record.node_serial = index_.serial(record.node);
  record.num_published = hit.num_tokens;
  // A transfer of the row waits for the steps that compute the hits (KV-3).
  for (int32_t i = 0; i < hit.num_tokens / index_.unit(); ++i) {
    record.last_sequence = std::max(record.last_sequence, index_.sequence(hit.path[static_cast<size_t>(i)]));
  }
  set_capacity(row);
  return row;
}

void CacheManager::publish(RowId row, const PrefixQuery& query, bool snapshot) {
  RowRecord& record = state(row);
  if (!config_.prefix_cache || record.loading || record.forked) return;
  const int32_t planned = mutated(Mutation::kPublishAtSchedule) ? num_scheduled(row) : num_planned(row);
  const auto known = std::min<int64_t>(static_cast<int64_t>(query.tokens.size()), planned);
  if (record.num_published + index_.unit() > known) return;  // as in most steps: no hash block was completed
  if (!index_.is_alive(record.node, record.node_serial)) {   // evicted meanwhile: find the way again
    record.node = PrefixIndex::kRoot;
    record.num_published = 0;
  }
  while (record.num_published + index_.unit() <= known) {
    const int32_t i = record.num_published / index_.unit();
    const PrefixIndex::NodeId node = index_.find_or_add_child(record.node, query, i);
    if (node == PrefixIndex::kNone) break;  // the index is full
    record.node = node;
    record.num_published += index_.unit();
    publish_groups(row, record, node, snapshot);
  }
  record.node_serial = index_.serial(record.node);
  BZ_CHECK_LE(record.num_published, planned);
}

// Names the row's blocks that end with the node, where the node has none yet.
void CacheManager::publish_groups(RowId row, RowRecord& record, PrefixIndex::NodeId node, bool snapshot) {
  const int32_t end_token = record.num_published;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const GroupSpec& s = spec(group);
    const int32_t per_block = tokens_per_block(s);
    if (index_.block(node, group) != kNullBlock) continue;
    int32_t column = 0;
    if (s.snapshot) {
      // The state at exactly this token, and nothing planned beyond it; the row goes on with a copy.
      const int32_t interval = std::max(config_.snapshot_interval, index_.unit());
      const bool here = snapshot && end_token == num_planned(row) && !in_next_plan(row) && end_token % interval == 0;
      if (!here || (record.frozen >> g & 1) != 0 || tables_.width(group, row) == 0) continue;
    } else {
      if (per_block == 0 || end_token % per_block != 0) continue;
      column = sink_columns(s) + end_token / per_block - 1;
      if (column < tables_.first(group, row) || column >= tables_.width(group, row)) continue;
    }
    const BlockId block = tables_.block(group, row, column);
    if (pool_.is_cached(block)) continue;
    index_.set_block(node, group, block, record.last_sequence);
    pool_.set_cached(block, true);
    if (!s.snapshot) continue;
    record.frozen |= 1u << g;
    fill_of(row).capacity = 0;
  }
}

void CacheManager::reset_prefix_cache() {
  for (int32_t id = 1; id < pool_.num_blocks(); ++id) {
    const BlockId block(static_cast<uint32_t>(id));
    if (!pool_.is_cached(block)) continue;
    index_.forget(block);
    pool_.set_cached(block, false);
  }
  BZ_CHECK_EQ(index_.num_cached_blocks(), 0);
}

bool CacheManager::can_fork(RowId row) const {
  const RowRecord& record = state(row);
  BZ_CHECK(!in_next_plan(row) && !record.loading && record.sending == 0);
  int32_t needed = 0;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupSpec& s = spec(GroupId(g));
    const int32_t width = tables_.width(GroupId(g), row);
    if (s.kind == CacheKind::kCross) continue;
    if (tokens_per_block(s) == 0) {
      needed += width;
    } else {
      const int32_t full = sink_columns(s) + num_scheduled(row) / tokens_per_block(s);
      needed += std::max(0, width - std::max(full, tables_.first(GroupId(g), row)));
    }
  }
  return can_admit() && pool_.can_allocate(needed);
}

RowId CacheManager::fork(RowId parent) {
  BZ_CHECK(can_fork(parent));
  const RowRecord from = state(parent);
  const RowId row = new_row(num_scheduled(parent), from.encoder_tokens);
  RowRecord& record = state(row);
  record = from;
  for (int32_t g = 0; g < num_tables(); ++g) {
    const GroupId group(g);
    const GroupSpec& s = spec(group);
    const int32_t per_block = tokens_per_block(s);
    const Columns columns = tables_.columns(group, parent);
    // Columns from here on may still be written, by both rows.
    int32_t open = per_block > 0 ? sink_columns(s) + num_scheduled(parent) / per_block : 0;
    if (s.kind == CacheKind::kCross) open = columns.width;
    fill_table(group, row, columns, [&](int32_t c) {
      const BlockId block = tables_.block(group, parent, c);
      if (c < open) return share(block);
      const BlockId copy = take_block();
      copy_block(block, copy);
      return copy;
    });
  }
  record.forked = true;
  forked_.push_back(row);
  record.frozen = 0;  // its states are copies already
  set_capacity(row);
  return row;
}

}  // namespace bz::kv
