// BpeMerges: the merge table of byte-pair encoding, and the merging of one piece.
//
// A rule (left, right) -> merged has a rank, its line in the file. Encoding a piece applies, as long as any rule
// applies, the one of lowest rank, at its leftmost place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bz::formats {

class BpeMerges {
 public:
  struct Rule {
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };
  static constexpr uint32_t kNoRank = ~0u;

  // Room for `count` rules.
  explicit BpeMerges(size_t count = 0);
  // Of two rules for one pair the first counts. REQUIRES: at most the reserved number of rules; left, right >= 0.
  void add(int32_t left, int32_t right, Rule rule);
  // A rule with rank kNoRank: there is none.
  Rule find(int32_t left, int32_t right) const;

  // Merges `symbols` (the piece's bytes as token ids) in place until no rule applies.
  void merge(std::vector<int32_t>& symbols) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    Rule rule;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  size_t slot_of(uint64_t pair) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  int shift_ = 0;
};

}  // namespace bz::formats
