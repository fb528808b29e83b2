// Memory asked for before it is used. A thread that comes back to its data after milliseconds finds little of it in its
// caches: a line costs 140 ns if the next one waits for it, 3 to 9 ns if it does not (Zen 5; bench/b10_cold.cc).
//
// Reads, not prefetch instructions: of many of those in a row Zen 5 drops most.
#pragma once

#include <cstddef>
#include <span>

namespace bz {

inline constexpr size_t kCacheLine = 64;

inline void touch(const void* byte) { (void)*static_cast<const volatile std::byte*>(byte); }

// Every cache line of so many bytes, which need not begin with one.
template <size_t kBytes>
void touch_bytes(const void* begin) {
  const auto* bytes = static_cast<const std::byte*>(begin);
#pragma GCC unroll 16
  for (size_t at = 0; at < kBytes; at += kCacheLine) touch(bytes + at);
  touch(bytes + kBytes - 1);
}

// Every cache line of an array.
template <class T>
void touch_all(std::span<const T> array) {
  const std::span bytes = std::as_bytes(array);
  for (size_t at = 0; at < bytes.size(); at += kCacheLine) touch(&bytes[at]);
  if (!bytes.empty()) touch(&bytes.back());
}

}  // namespace bz
