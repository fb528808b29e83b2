// PrefixIndex: which blocks hold which prefix. A tree of hash blocks (`unit` tokens each); a node names, per group, the
// block whose content ends with it. One walk along a prompt serves all groups.
//
// Owned by CacheManager; not thread-safe; nothing is allocated after construction. A node is found by a chained digest
// and then verified: parent, tokens and identity are compared, so that a collision cannot give a wrong hit (KV-3).
//
// Invariants
//   1. A node lives while it names a block or has children. Node 0 is the root, of every identity.
//   2. A block is named by at most one node, in one group. The null block by none (PAD-1).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "kv/types.h"

namespace bz::kv {

struct Digest {
  std::array<uint64_t, 4> words{};
  bool operator==(const Digest&) const = default;
};
// SHA-256 or another function over bytes, injected; nullptr: a built-in keyed 128-bit hash.
using DigestFn = Digest (*)(std::span<const uint8_t> bytes);

// Whose prefix it is. Two requests share blocks only if all of this is equal (KV-3).
struct PrefixIdentity {
  std::array<uint64_t, 2> tenant_salt{};
  uint64_t adapter = 0;
  bool operator==(const PrefixIdentity&) const = default;
};
// Tokens [start, start + length) stand for a media item with this content hash.
struct MediaSpan {
  int32_t start = 0;
  int32_t length = 0;
  std::array<uint64_t, 2> content{};
};
// A prompt as the index sees it.
struct PrefixQuery {
  std::span<const int32_t> tokens;
  PrefixIdentity identity = {};
  std::span<const MediaSpan> media = {};
};

class PrefixIndex {
 public:
  using NodeId = uint32_t;
  static constexpr NodeId kRoot = 0;
  static constexpr NodeId kNone = 0xffffffffu;

  // REQUIRES: unit >= 1, num_blocks >= 2. key: of the built-in hash, random per process.
  PrefixIndex(int32_t num_blocks, int32_t max_nodes, int32_t num_groups, int32_t unit, DigestFn digest, uint64_t key);

  int32_t unit() const { return unit_; }
  int32_t num_nodes() const { return num_nodes_; }
  int32_t num_cached_blocks() const { return num_cached_; }

  // The child of `parent` for hash block `i` of the query, or kNone. REQUIRES: (i + 1) * unit tokens.
  NodeId find_child(NodeId parent, const PrefixQuery& query, int32_t i) const;
  // The same, made if it is not there. kNone: the index is full.
  NodeId find_or_add_child(NodeId parent, const PrefixQuery& query, int32_t i);

  BlockId block(NodeId node, GroupId group) const { return blocks_[block_index(node, group)]; }
  // REQUIRES: the node names no block of the group; the block is named by no node.
  void set_block(NodeId node, GroupId group, BlockId block, uint64_t sequence);
  bool names(BlockId block) const { return owner_.at(block.value()).node != kNone; }
  // The plan that computes the node's content: a transfer may send it once that plan has been processed (KV-3).
  uint64_t sequence(NodeId node) const { return at(node).sequence; }
  // The block is given to someone else: forget it. REQUIRES: names(block).
  void forget(BlockId block);

  // Node ids are reused; a serial tells whether a remembered node is still the same one.
  uint64_t serial(NodeId node) const { return at(node).serial; }
  bool is_alive(NodeId node, uint64_t serial) const { return nodes_.at(node).serial == serial && serial != 0; }

  uint64_t hash() const;
  bool operator==(const PrefixIndex&) const = default;

 private:
  struct Extra {  // what else than tokens belongs to the key of one hash block
    PrefixIdentity identity;
    std::array<uint64_t, 2> media{};
    bool operator==(const Extra&) const = default;
  };
  // What a walk reads, apart from the rest: a long prompt's nodes share cache lines.
  struct Link {
    NodeId parent = kNone;      // of a free node: the next one
    NodeId last_child = kNone;  // the one added last: most walks need no hash
    int32_t num_children = 0;
    bool has_media = false;
    bool operator==(const Link&) const = default;
  };
  struct Node {
    int32_t num_blocks = 0;
    uint64_t serial = 0;  // 0: free
    uint64_t sequence = 0;
    Digest digest;
    Extra extra;
    bool operator==(const Node&) const = default;
  };
  struct Owner {
    NodeId node = kNone;
    int32_t group = 0;
    bool operator==(const Owner&) const = default;
  };

  const Node& at(NodeId node) const {
    BZ_CHECK_LT(node, nodes_.size());
    return nodes_[node];
  }
  size_t block_index(NodeId node, GroupId group) const {
    BZ_CHECK_LT(node, nodes_.size());
    BZ_CHECK_LT(static_cast<uint32_t>(group.value()), static_cast<uint32_t>(num_groups_));
    return size_t{node} * static_cast<size_t>(num_groups_) + static_cast<size_t>(group.value());
  }
  bool has_tokens(NodeId node, std::span<const int32_t> tokens) const {
    return std::memcmp(tokens.data(), tokens_.data() + size_t{node} * static_cast<size_t>(unit_),
                       tokens.size_bytes()) == 0;
  }
  std::span<const int32_t> tokens_of(const PrefixQuery& query, int32_t i) const {
    BZ_CHECK_GE(i, 0);
    BZ_CHECK_LE((int64_t{i} + 1) * unit_, static_cast<int64_t>(query.tokens.size()));
    return query.tokens.subspan(static_cast<size_t>(i) * static_cast<size_t>(unit_), static_cast<size_t>(unit_));
  }
  Extra extra_of(const PrefixQuery& query, int32_t i) const;
  struct Probe {
    std::span<const int32_t> tokens;
    Extra extra;
    Digest digest;
    NodeId node;
  };
  Digest digest_of(NodeId parent, const Extra& extra, std::span<const int32_t> tokens) const;
  Probe probe(NodeId parent, const PrefixQuery& query, int32_t i) const;
  void remove_if_unused(NodeId node);

  int32_t num_groups_ = 0;
  int32_t unit_ = 0;
  DigestFn digest_ = nullptr;
  uint64_t key_ = 0;
  std::vector<Link> links_;      // [nodes]
  std::vector<Node> nodes_;      // [nodes]
  std::vector<BlockId> blocks_;  // [nodes][num_groups]
  std::vector<int32_t> tokens_;  // [nodes][unit]
  // Open addressing, power of two, at most half full. `home` spares a look at the node: misses are what an add costs.
  struct Bucket {
    NodeId node = kNone;
    uint32_t home = 0;  // the digest's low bits: where a search for the node begins
    bool operator==(const Bucket&) const = default;
  };
  std::vector<Bucket> buckets_;
  std::vector<Owner> owner_;  // [num_blocks]
  uint32_t free_head_ = kNone;
  uint64_t next_serial_ = 1;
  int32_t num_nodes_ = 0;
  int32_t num_cached_ = 0;
};

}  // namespace bz::kv
