#include "kv/prefix_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/math.h"
#include "base/mutation.h"
#include "kv/hash.h"

namespace bz::kv {
namespace {

uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A keyed hash: two lanes of 64x64 -> 128 bit products. Collisions cost a comparison, never a wrong hit.
struct FastHash {
  uint64_t a, b;
  explicit FastHash(uint64_t key) : a(key ^ 0x9e3779b97f4a7c15u), b(key + 0xbf58476d1ce4e5b9u) {}
  void add(uint64_t x, uint64_t y) {
    const uint64_t next = fold(a ^ x, y ^ 0x94d049bb133111ebu);
    b = fold(b ^ y, x ^ 0xd6e8feb86659fd93u) + a;
    a = next;
  }
};

}  // namespace

PrefixIndex::PrefixIndex(int32_t num_blocks, int32_t max_nodes, int32_t num_groups, int32_t unit, DigestFn digest,
                         uint64_t key)
    : num_groups_(num_groups), unit_(unit), digest_(digest), key_(key) {
  BZ_CHECK_GE(unit, 1);
  BZ_CHECK_GE(num_blocks, 2);
  BZ_CHECK_GE(max_nodes, 0);
  const size_t nodes = static_cast<size_t>(max_nodes) + 1;
  links_.resize(nodes);
  nodes_.resize(nodes);
  blocks_.resize(nodes * static_cast<size_t>(num_groups), kNullBlock);
  tokens_.resize(nodes * static_cast<size_t>(unit));
  nodes_[kRoot].serial = next_serial_++;
  for (NodeId n = static_cast<NodeId>(max_nodes); n > kRoot; --n) links_[n].parent = std::exchange(free_head_, n);
  buckets_.resize(next_pow2(nodes * 2));
  owner_.resize(static_cast<size_t>(num_blocks));
}

PrefixIndex::Extra PrefixIndex::extra_of(const PrefixQuery& query, int32_t i) const {
  Extra extra{query.identity, {}};
  FastHash media(key_);
  bool any = false;
  for (const MediaSpan& m : query.media) {
    const int32_t from = i * unit_;
    if (m.start >= from + unit_ || m.start + m.length <= from) continue;
    media.add(m.content[0], static_cast<uint64_t>(static_cast<int64_t>(m.start) - from));
    media.add(m.content[1], static_cast<uint64_t>(m.length));
    any = true;
  }
  if (any) extra.media = {media.a, media.b | 1};
  return extra;
}

// The identity goes into the first hash block's digest; the chain carries it on.
Digest PrefixIndex::digest_of(NodeId parent_node, const Extra& extra, std::span<const int32_t> tokens) const {
  const Digest& parent = at(parent_node).digest;
  const bool first = parent_node == kRoot;
  if (digest_ == nullptr) {
    FastHash h(key_);
    h.add(parent.words[0], parent.words[1]);
    if (first) {
      h.add(extra.identity.tenant_salt[0], extra.identity.tenant_salt[1]);
      h.add(extra.identity.adapter, 0);
    }
    if (extra.media[1] != 0) h.add(extra.media[0], extra.media[1]);
    size_t i = 0;
    for (; i + 4 <= tokens.size(); i += 4) {
      uint64_t pair[2];
      std::memcpy(pair, tokens.data() + i, sizeof(pair));
      h.add(pair[0], pair[1]);
    }
    for (; i < tokens.size(); ++i) h.add(static_cast<uint32_t>(tokens[i]), i);
    return {{h.a, h.b, 0, 0}};
  }
  uint8_t bytes[sizeof(Digest) + sizeof(Extra) + 4096];
  Digest chain = parent;
  // Long hash blocks in pieces, each chained to the one before.
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min<size_t>(tokens.size() - done, 1024);
    const size_t extra_bytes = first || extra.media[1] != 0 ? sizeof(Extra) : 0;
    std::memcpy(bytes, &chain, sizeof(Digest));
    std::memcpy(bytes + sizeof(Digest), &extra, extra_bytes);
    std::memcpy(bytes + sizeof(Digest) + extra_bytes, tokens.data() + done, n * sizeof(int32_t));
    chain = digest_({bytes, sizeof(Digest) + extra_bytes + n * sizeof(int32_t)});
    done += n;
  }
  return chain;
}

PrefixIndex::Probe PrefixIndex::probe(NodeId parent, const PrefixQuery& query, int32_t i) const {
  Probe p{tokens_of(query, i), extra_of(query, i), {}, links_[parent].last_child};
  const bool try_last = p.node != kNone && !mutated(Mutation::kHitWithoutTokens);
  if (try_last && nodes_[p.node].extra == p.extra && has_tokens(p.node, p.tokens)) return p;
  p.digest = digest_of(parent, p.extra, p.tokens);
  const size_t mask = buckets_.size() - 1;
  const auto home = static_cast<uint32_t>(p.digest.words[0]);
  for (size_t b = home & mask; (p.node = buckets_[b].node) != kNone; b = (b + 1) & mask) {
    if (buckets_[b].home != home || nodes_[p.node].digest != p.digest) continue;
    if (links_[p.node].parent != parent || nodes_[p.node].extra != p.extra) continue;
    if (has_tokens(p.node, p.tokens) || mutated(Mutation::kHitWithoutTokens)) break;
  }
  return p;
}

PrefixIndex::NodeId PrefixIndex::find_child(NodeId parent, const PrefixQuery& query, int32_t i) const {
  // Below the root a child has its parent's identity, which was compared on the way: what may differ are media.
  const NodeId last = links_[parent].last_child;
  const bool same = parent != kRoot && last != kNone && query.media.empty() && !links_[last].has_media;
  if (same && !mutated(Mutation::kHitWithoutTokens) && has_tokens(last, tokens_of(query, i))) return last;
  return probe(parent, query, i).node;
}

PrefixIndex::NodeId PrefixIndex::find_or_add_child(NodeId parent, const PrefixQuery& query, int32_t i) {
  const Probe p = probe(parent, query, i);
  if (p.node != kNone || free_head_ == kNone) return p.node;
  const NodeId id = free_head_;
  Node& n = nodes_[id];
  free_head_ = links_[id].parent;
  links_[id] = {parent, kNone, 0, p.extra.media[1] != 0};
  n = {0, next_serial_++, 0, p.digest, p.extra};
  const size_t at_token = size_t{id} * static_cast<size_t>(unit_);
  std::copy(p.tokens.begin(), p.tokens.end(), tokens_.begin() + static_cast<int64_t>(at_token));
  ++links_[parent].num_children;
  links_[parent].last_child = id;
  ++num_nodes_;
  const size_t mask = buckets_.size() - 1;
  const auto home = static_cast<uint32_t>(p.digest.words[0]);
  size_t b = home & mask;
  while (buckets_[b].node != kNone) b = (b + 1) & mask;
  buckets_[b] = {id, home};
  return id;
}

void PrefixIndex::set_block(NodeId node, GroupId group, BlockId block, uint64_t sequence) {
  BZ_CHECK(node != kRoot && at(node).serial != 0);
  BZ_CHECK(block != kNullBlock && !names(block));
  Node& n = nodes_[node];
  BlockId& named = blocks_[block_index(node, group)];
  BZ_CHECK(named == kNullBlock);
  named = block;
  n.sequence = std::max(n.sequence, sequence);
  ++n.num_blocks;
  ++num_cached_;
  owner_[block.value()] = {node, group.value()};
}

void PrefixIndex::forget(BlockId block) {
  BZ_CHECK(block != kNullBlock);
  BZ_CHECK(names(block));
  const Owner owner = owner_[block.value()];
  blocks_[block_index(owner.node, GroupId(owner.group))] = kNullBlock;
  --nodes_[owner.node].num_blocks;
  --num_cached_;
  owner_[block.value()] = {};
  remove_if_unused(owner.node);
}

// Takes out the node and every ancestor that has nothing left; buckets behind a hole move up.
void PrefixIndex::remove_if_unused(NodeId node) {
  while (node != kRoot && nodes_[node].num_blocks == 0 && links_[node].num_children == 0) {
    const size_t mask = buckets_.size() - 1;
    size_t hole = nodes_[node].digest.words[0] & mask;
    while (buckets_[hole].node != node) hole = (hole + 1) & mask;
    for (size_t b = (hole + 1) & mask; buckets_[b].node != kNone; b = (b + 1) & mask) {
      if (((b - buckets_[b].home) & mask) < ((b - hole) & mask)) continue;
      buckets_[hole] = buckets_[b];
      hole = b;
    }
    buckets_[hole] = {};
    const NodeId parent = links_[node].parent;
    nodes_[node] = Node{};
    links_[node] = {std::exchange(free_head_, node), kNone, 0, false};
    --num_nodes_;
    --links_[parent].num_children;
    if (links_[parent].last_child == node) links_[parent].last_child = kNone;
    node = parent;
  }
}

uint64_t PrefixIndex::hash() const {
  Hasher h;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].serial == 0) continue;
    h.add(n);
    h.add(nodes_[n].digest.words[0]);
  }
  for (BlockId b : blocks_) h.add(b.value());
  return h.value();
}

}  // namespace bz::kv
