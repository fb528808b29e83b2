// BlockPool: which blocks are free, owned, or waiting for the steps that may still touch them. One pool for all groups.
//
// Owned by CacheManager; not thread-safe; deterministic. Every operation on one block is O(1) and allocates nothing
// after construction. Copyable and comparable, so that a search can keep states.
//
// Invariants
//   1. Block 0 is never allocated, freed or counted: it is the sentinel of the free list (PAD-1).
//   2. A block is in exactly one state: free (in the free list), owned (ref > 0), fenced (in the fenced queue).
//   3. num_free + num_fenced + num_owned == num_blocks - 1.
//   4. Fences in the fenced queue never decrease from front to back.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/mutation.h"
#include "kv/types.h"

namespace bz::kv {

inline constexpr int32_t kMaxRefs = (1 << 27) - 1;

class BlockPool {
 public:
  // REQUIRES: num_blocks >= 2 (block 0 and one usable block).
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const { return num_blocks_; }
  int32_t num_free() const { return num_free_; }      // can be allocated now
  int32_t num_fenced() const { return num_fenced_; }  // freed, but a step in flight may still touch them (KV-2)
  int32_t num_owned() const { return num_blocks_ - 1 - num_free_ - num_fenced_; }
  int32_t ref_count(BlockId block) const { return node(block).ref; }
  bool is_free(BlockId block) const { return node(block).state == State::kFree; }
  bool is_fenced(BlockId block) const { return node(block).state == State::kFenced; }

  bool can_allocate(int32_t count) const { return count <= num_free_; }
  // Takes the block at the head of the free list, with one reference. REQUIRES: can_allocate(1).
  BlockId allocate() {
    BZ_CHECK_GT(num_free_, 0);
    const uint32_t id = nodes_[0].next;
    if (mutated(Mutation::kNullBlockIsGivenOut)) return BlockId(0u);
    BZ_CHECK_NE(id, 0u);  // PAD-1: the null block is the sentinel, never an element
    unlink(id);
    Node& n = nodes_[id];
    n.state = State::kOwned;
    n.ref = 1;
    --num_free_;
    return BlockId(id);
  }

  // One more owner. A free or fenced block (a prefix hit) becomes owned. REQUIRES: not the null block.
  void add_ref(BlockId block);
  // One owner less. The last one leaves the block free at once if every step up to `fence` has been processed, else
  // fenced. REQUIRES: the block is owned; fence is not below an earlier call's.
  void release(BlockId block, uint64_t fence);
  // Steps up to `sequence` have finished: blocks fenced by them become free.
  void processed(uint64_t sequence);
  uint64_t processed_sequence() const { return processed_; }

  // A block with cached content goes to the back of the free list when it gets free (reused last), others to the front.
  void set_cached(BlockId block, bool cached);
  bool is_cached(BlockId block) const { return node(block).cached; }

  // Walks list and queue: invariants 2 to 4. Slow; for the integrity check.
  bool lists_are_sound() const;
  uint64_t hash() const;
  bool operator==(const BlockPool&) const = default;

 private:
  enum class State : uint8_t { kNull, kFree, kOwned, kFenced };
  // 12 bytes: freed and allocated in random order, the size of this array is what an operation costs.
  struct Node {
    uint32_t prev = 0;
    uint32_t next = 0;  // of a fenced block: its place in the queue
    int32_t ref : 28 = 0;
    State state : 3 = State::kNull;
    bool cached : 1 = false;
    bool operator==(const Node&) const = default;
  };
  // A queue and not a list: the blocks that a step sets free are known without reading the blocks one after another.
  struct Fenced {
    uint32_t block = 0;  // 0: owned again meanwhile
    uint64_t fence = 0;
    bool operator==(const Fenced&) const = default;
  };

  const Node& node(BlockId block) const {
    BZ_CHECK_LT(block.value(), static_cast<uint32_t>(num_blocks_));
    return nodes_[block.value()];
  }
  void link_before(uint32_t position, uint32_t block) {
    const uint32_t prev = nodes_[position].prev;
    nodes_[block].prev = prev;
    nodes_[block].next = position;
    nodes_[prev].next = block;
    nodes_[position].prev = block;
  }
  void unlink(uint32_t block) {
    const Node& n = nodes_[block];
    nodes_[n.prev].next = n.next;
    nodes_[n.next].prev = n.prev;
  }
  void make_free(uint32_t block);
  void make_fenced(uint32_t block, uint64_t fence);
  void drop_empty_places();
  // Places of the queue; twice the blocks, so that many are empty when all are taken.
  size_t max_fenced_places() const { return 2 * static_cast<size_t>(num_blocks_); }
  Fenced& fenced(const Node& n) { return fenced_[n.next - num_unfenced_]; }

  std::vector<Node> nodes_;  // [num_blocks]; the first is the free list's sentinel
  std::vector<Fenced> fenced_;
  uint32_t num_unfenced_ = 0;  // places that have left the queue, since it was empty
  int32_t num_blocks_ = 0;
  int32_t num_free_ = 0;
  int32_t num_fenced_ = 0;
  uint64_t processed_ = 0;
};

}  // namespace bz::kv
