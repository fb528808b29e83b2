// SpecialMatcher: finds special tokens spelled out in a text, the longest one at each place (a trie).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace bz::formats {

class SpecialMatcher {
 public:
  struct Match {
    int32_t id = -1;  // -1: none
    size_t begin = 0;
    size_t length = 0;
  };

  SpecialMatcher() : nodes_(1) {}
  // `always`: matched even when only the always-matched tokens are asked for (user-defined tokens).
  // An empty spelling is ignored; of two equal ones the first counts.
  void add(std::string_view spelling, int32_t id, bool always);
  // The first match at or behind `from`.
  Match find(std::string_view text, size_t from, bool only_always) const;

 private:
  struct Node {
    int32_t id = -1;
    bool always = false;
    std::vector<std::pair<char, uint32_t>> children;
  };
  const Node* child(const Node& node, char c) const;
  Match match_at(std::string_view text, size_t at, bool only_always) const;

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::array<bool, 256> starts_{};
};

}  // namespace bz::formats
