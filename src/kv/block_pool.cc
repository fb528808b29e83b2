#include "kv/block_pool.h"

#include "base/touch.h"
#include "kv/hash.h"

namespace bz::kv {

BlockPool::BlockPool(int32_t num_blocks) : num_blocks_(num_blocks) {
  BZ_CHECK_GE(num_blocks, 2);
  nodes_.resize(static_cast<size_t>(num_blocks));
  fenced_.reserve(max_fenced_places());
  for (uint32_t id = 1; id < static_cast<uint32_t>(num_blocks); ++id) {
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
    if (n.state == State::kFree) {
      unlink(block.value());
      --num_free_;
    } else {
      fenced(n).block = 0;
      --num_fenced_;
    }
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
  fence <= processed_ ? make_free(block.value()) : make_fenced(block.value(), fence);
}

void BlockPool::make_fenced(uint32_t block, uint64_t fence) {
  BZ_CHECK(fenced_.empty() || fenced_.back().fence <= fence);
  if (fenced_.size() == max_fenced_places()) drop_empty_places();
  Node& n = nodes_[block];
  n.state = State::kFenced;
  n.next = num_unfenced_ + static_cast<uint32_t>(fenced_.size());
  fenced_.push_back({block, fence});
  ++num_fenced_;
}

// At least half of the places are empty when they are all taken: a place costs O(1).
void BlockPool::drop_empty_places() {
  std::erase_if(fenced_, [](const Fenced& f) { return f.block == 0; });
  for (uint32_t i = 0; i < fenced_.size(); ++i) nodes_[fenced_[i].block].next = num_unfenced_ + i;
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
  auto end = fenced_.begin();
  for (; end != fenced_.end() && end->fence <= sequence; ++end) touch(&nodes_[end->block]);
  for (auto at = fenced_.begin(); at != end; ++at) {
    if (at->block == 0) continue;
    --num_fenced_;
    make_free(at->block);
  }
  num_unfenced_ += static_cast<uint32_t>(end - fenced_.begin());
  fenced_.erase(fenced_.begin(), end);
  if (fenced_.empty()) num_unfenced_ = 0;
}

void BlockPool::set_cached(BlockId block, bool cached) {
  BZ_CHECK(block != kNullBlock);
  BZ_CHECK_LT(block.value(), static_cast<uint32_t>(num_blocks_));
  nodes_[block.value()].cached = cached;
}

bool BlockPool::lists_are_sound() const {
  std::vector<int> seen(nodes_.size(), 0);
  int32_t num_free = 0, num_fenced = 0;
  const auto is_sound = [&](uint32_t block, State state) {
    const Node& n = nodes_[block];
    return n.state == state && n.ref == 0 && seen[block]++ == 0;
  };
  for (uint32_t id = nodes_[0].next; id != 0; id = nodes_[id].next) {
    if (!is_sound(id, State::kFree) || nodes_[nodes_[id].next].prev != id) return false;
    ++num_free;
  }
  uint64_t fence = 0;
  for (uint32_t i = 0; i < fenced_.size(); ++i) {
    const auto& [block, until] = fenced_[i];
    if (until < fence || until <= processed_) return false;
    fence = until;
    if (block == 0) continue;
    if (!is_sound(block, State::kFenced) || nodes_[block].next != num_unfenced_ + i) return false;
    ++num_fenced;
  }
  if (num_free != num_free_ || num_fenced != num_fenced_) return false;
  for (uint32_t id = 1; id < nodes_.size(); ++id) {
    const bool owned = nodes_[id].state == State::kOwned;
    if (owned != (nodes_[id].ref > 0) || owned == (seen[id] != 0)) return false;
  }
  return nodes_[0].ref == 0 && nodes_[0].state == State::kNull;
}

uint64_t BlockPool::hash() const {
  Hasher h;
  h.add(processed_);
  for (const Node& n : nodes_) {
    const uint32_t next = n.state == State::kFree || n.state == State::kNull ? n.next : 0;
    h.add(static_cast<uint64_t>(next) << 32 | static_cast<uint32_t>(n.ref));
    h.add(n.cached ? 1u : 0u);
  }
  for (const Fenced& f : fenced_) {
    if (f.block == 0) continue;
    h.add(f.block);
    h.add(f.fence);
  }
  return h.value();
}

}  // namespace bz::kv
