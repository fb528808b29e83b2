// Which GPUs a build has machine code for.
#pragma once

#include <algorithm>
#include <string_view>

namespace bz::device::cuda {

// archs: what was compiled, "80,90a,100". Machine code of major.minor runs on GPUs of the same major version and at
// least that minor one; code of an "a" architecture on exactly that one.
constexpr bool has_code_for(std::string_view archs, int major, int minor) {
  while (!archs.empty()) {
    const size_t end = std::min(archs.find(','), archs.size());
    int number = 0;
    bool exact = false;
    for (char c : archs.substr(0, end)) {
      if (c >= '0' && c <= '9') number = number * 10 + (c - '0');
      exact |= c == 'a';
    }
    if (number / 10 == major && (exact ? number % 10 == minor : number % 10 <= minor)) return true;
    archs.remove_prefix(end < archs.size() ? end + 1 : end);
  }
  return false;
}

}  // namespace bz::device::cuda
