// StringIndex: finds the position of a string among strings that somebody else keeps (open addressing).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/math.h"

namespace bz::formats {

class StringIndex {
 public:
  StringIndex() = default;
  // REQUIRES: the strings outlive the index; fewer than 2^31. Of equal strings the first is found.
  explicit StringIndex(std::vector<std::string_view> strings)
      : strings_(std::move(strings)), slots_(next_pow2(2 * strings_.size() + 2), -1) {
    for (size_t i = 0; i < strings_.size(); ++i) {
      int32_t& slot = slots_[slot_of(strings_[i])];
      if (slot < 0) slot = static_cast<int32_t>(i);
    }
  }
  // -1: not there.
  int32_t find(std::string_view text) const { return slots_.empty() ? -1 : slots_[slot_of(text)]; }

 private:
  size_t slot_of(std::string_view text) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = std::hash<std::string_view>{}(text)&mask;
    while (slots_[slot] >= 0 && strings_[static_cast<size_t>(slots_[slot])] != text) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<std::string_view> strings_;
  std::vector<int32_t> slots_;
};

}  // namespace bz::formats
