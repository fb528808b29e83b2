#include "formats/special_matcher.h"

namespace bz::formats {

const SpecialMatcher::Node* SpecialMatcher::child(const Node& node, char c) const {
  for (const auto& [character, index] : node.children) {
    if (character == c) return &nodes_[index];
  }
  return nullptr;
}

void SpecialMatcher::add(std::string_view spelling, int32_t id, bool always) {
  if (spelling.empty()) return;
  uint32_t at = 0;
  for (const char c : spelling) {
    if (const Node* next = child(nodes_[at], c)) {
      at = static_cast<uint32_t>(next - nodes_.data());
      continue;
    }
    const auto added = static_cast<uint32_t>(nodes_.size());
    nodes_[at].children.emplace_back(c, added);
    nodes_.emplace_back();
    at = added;
  }
  if (nodes_[at].id >= 0) return;
  nodes_[at].id = id;
  nodes_[at].always = always;
  starts_[static_cast<uint8_t>(spelling[0])] = true;
}

SpecialMatcher::Match SpecialMatcher::find(std::string_view text, size_t from, bool only_always) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    if (const Match match = match_at(text, at, only_always); match.id >= 0) return match;
  }
  return {};
}

SpecialMatcher::Match SpecialMatcher::match_at(std::string_view text, size_t at, bool only_always) const {
  Match longest;
  const Node* node = &nodes_[0];
  for (size_t end = at; end < text.size();) {
    node = child(*node, text[end++]);
    if (node == nullptr) break;
    if (node->id >= 0 && (node->always || !only_always)) longest = {node->id, at, end - at};
  }
  return longest;
}

}  // namespace bz::formats
