#include "kv/block_pool.h"

#include "kv/hash.h"

namespace bz::kv {

BlockPool::BlockPool(int32_t num_blocks) : num_blocks_(num_blocks) {
  BZ_CHECK_GE(num_blocks, 2);
  nodes_.resize(static_cast<size_t>(num_blocks) + 1);
  fences_.resize(static_cast<size_t>(num_blocks));
  const auto fenced = static_cast<uint32_t>(num_blocks);
  nodes_[fenced].prev = nodes_[fenced].next = fenced;
  for (uint32_t id = 1; id < fenced; ++id) {
    nodes_[id].state = State::kFree;
    link_before(0, id);
  }
  num_free_ = num_blocks - 1;
}

void BlockPool::add_ref(BlockId block) {
  BZ_CHECK(block != kNullBlock);
  BZ_CHECK_LT(block.value(), static_cast<uint32_t>(num_blocks_));
  Node& n = nodes_[block.value()];
  if (n.state != State::kOwned) {
    unlink(block.value());
    --(n.state == State::kFree ? num_free_ : num_fenced_);
    fences_[block.value()] = 0;
    n.state = State::kOwned;
  }
  BZ_CHECK_LT(n.ref + 0, kMaxRefs);
  n.ref = n.ref + 1;
}

void BlockPool::release(BlockId block, uint64_t fence) {
  BZ_CHECK(block != kNullBlock);
  BZ_CHECK_LT(block.value(), static_cast<uint32_t>(num_blocks_));
  Node& n = nodes_[block.value()];
  BZ_CHECK(n.ref > 0);
  n.ref = n.ref - 1;
  if (n.ref > 0) return;
  if (fence <= processed_) return make_free(block.value());
  const auto sentinel = static_cast<uint32_t>(num_blocks_);
  const uint32_t last = nodes_[sentinel].prev;
  BZ_CHECK(last == sentinel || fences_[last] <= fence);
  n.state = State::kFenced;
  fences_[block.value()] = fence;
  link_before(sentinel, block.value());
  ++num_fenced_;
}

void BlockPool::make_free(uint32_t block) {
  Node& n = nodes_[block];
  BZ_CHECK(n.ref == 0);
  n.state = State::kFree;
  link_before(n.cached ? 0 : nodes_[0].next, block);
  ++num_free_;
}

void BlockPool::processed(uint64_t sequence) {
  BZ_CHECK_GE(sequence, processed_);
  processed_ = sequence;
  const auto sentinel = static_cast<uint32_t>(num_blocks_);
  while (nodes_[sentinel].next != sentinel) {
    const uint32_t block = nodes_[sentinel].next;
    if (fences_[block] > sequence) return;
    fences_[block] = 0;
    unlink(block);
    --num_fenced_;
    make_free(block);
  }
  BZ_CHECK_EQ(num_fenced_, 0);
}

void BlockPool::set_cached(BlockId block, bool cached) {
  BZ_CHECK(block != kNullBlock);
  BZ_CHECK_LT(block.value(), static_cast<uint32_t>(num_blocks_));
  nodes_[block.value()].cached = cached;
}

bool BlockPool::lists_are_sound() const {
  const auto sentinel = static_cast<uint32_t>(num_blocks_);
  std::vector<int> seen(nodes_.size(), 0);
  const auto walk = [&](uint32_t head, State state, int32_t count) {
    uint64_t fence = 0;
    for (uint32_t id = nodes_[head].next; id != head; id = nodes_[id].next) {
      const Node& n = nodes_[id];
      if (n.state != state || n.ref != 0 || seen[id]++ != 0 || --count < 0) return false;
      if (fences_[id] < fence || nodes_[n.next].prev != id) return false;
      fence = fences_[id];
    }
    return count == 0;
  };
  if (!walk(0, State::kFree, num_free_) || !walk(sentinel, State::kFenced, num_fenced_)) return false;
  for (uint32_t id = 1; id < sentinel; ++id) {
    const bool owned = nodes_[id].state == State::kOwned;
    if (owned != (nodes_[id].ref > 0) || owned == (seen[id] != 0)) return false;
  }
  return nodes_[0].ref == 0 && nodes_[0].state == State::kNull;
}

uint64_t BlockPool::hash() const {
  Hasher h;
  h.add(processed_);
  for (const Node& n : nodes_) {
    h.add(static_cast<uint64_t>(n.next) << 32 | static_cast<uint32_t>(n.ref));
    h.add(n.cached ? 1u : 0u);
  }
  for (uint64_t fence : fences_) h.add(fence);
  return h.value();
}

}  // namespace bz::kv
