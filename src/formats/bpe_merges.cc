#include "formats/bpe_merges.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "base/math.h"

namespace bz::formats {
namespace {
// Up to here a scan over all neighbours per merge beats a heap.
constexpr size_t kShortPiece = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}
}  // namespace

BpeMerges::BpeMerges(size_t count) {
  const size_t capacity = next_pow2(2 * count + 2);
  slots_.resize(capacity);
  shift_ = 64 - std::countr_zero(capacity);
}

size_t BpeMerges::slot_of(uint64_t pair) const {
  // Fibonacci hashing: the high bits of the product depend on every bit of the pair.
  size_t slot = static_cast<size_t>((pair * 0x9e3779b97f4a7c15u) >> shift_);
  while (slots_[slot].pair != pair && slots_[slot].pair != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void BpeMerges::add(int32_t left, int32_t right, Rule rule) {
  BZ_CHECK(left >= 0 && right >= 0);
  Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.pair != kEmpty) return;
  slot = {pair_key(left, right), rule};
}

BpeMerges::Rule BpeMerges::find(int32_t left, int32_t right) const {
  return slots_[slot_of(pair_key(left, right))].rule;
}

void BpeMerges::merge(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortPiece) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void BpeMerges::merge_short(std::vector<int32_t>& symbols) const {
  Rule rules[kShortPiece];  // rules[i] is for symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == kNoRank) break;
    symbols[best] = rules[best].merged;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      rules[i - 1] = rules[i];
    }
    // The merged symbol has new neighbours on both sides; rules to the right of it moved down with their symbols.
    if (best + 1 < count) rules[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) rules[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void BpeMerges::merge_long(std::vector<int32_t>& symbols) const {
  BZ_CHECK_LT(symbols.size(), size_t{1} << 31);
  const auto count = static_cast<uint32_t>(symbols.size());
  const uint32_t none = count;
  std::vector<uint32_t> next(count);
  std::vector<uint32_t> previous(count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;  // the last one's is `none`
    previous[i] = i == 0 ? none : i - 1;
  }
  // A possible merge of the symbol at `at` and the next one: rank, then place, in one number, so that the lowest is the
  // next to do and millions of them stay in the cache. Stale once the two have another rule, or none.
  std::vector<uint64_t> heap;
  const auto rule_at = [&](uint32_t at) {
    const bool pair = symbols[at] >= 0 && next[at] != none;
    return pair ? find(symbols[at], symbols[next[at]]) : Rule{};
  };
  const auto candidate = [](uint32_t rank, uint32_t at) { return (uint64_t{rank} << 32) | at; };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    if (const Rule rule = rule_at(i); rule.rank != kNoRank) heap.push_back(candidate(rule.rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto consider = [&](uint32_t at) {
    if (at == none) return;
    const Rule rule = rule_at(at);
    if (rule.rank == kNoRank) return;
    heap.push_back(candidate(rule.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(best);
    const Rule rule = rule_at(at);
    if (rule.rank != best >> 32) continue;
    const uint32_t gone = next[at];
    symbols[at] = rule.merged;
    symbols[gone] = -1;
    next[at] = next[gone];
    if (next[gone] != none) previous[next[gone]] = at;
    consider(previous[at]);
    consider(at);
  }
  std::erase(symbols, -1);
}

}  // namespace bz::formats
