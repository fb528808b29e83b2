// StrongId: an integer with a name. No implicit conversion to, from or between them (fault F16: two sentinels,
// a block where a slot belongs). Usable in constant expressions and in device code.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#if defined(__CUDACC__)
#define BZ_HD __host__ __device__
#else
#define BZ_HD
#endif

namespace bz {

template <class Tag, class Rep>
class StrongId {
 public:
  using rep = Rep;
  StrongId() = default;
  BZ_HD constexpr explicit StrongId(Rep v) : value_(v) {}
  // Refuses every other arithmetic type, so that narrowing is spelled out at the call.
  template <class Other>
    requires(std::is_arithmetic_v<Other> && !std::is_same_v<Other, Rep>)
  explicit StrongId(Other) = delete;

  BZ_HD constexpr Rep value() const { return value_; }
  // Member operators, not templates, so that mixing two id types does not compile.
  // By value: a host constant has no address on the device.
  BZ_HD constexpr bool operator==(StrongId other) const { return value_ == other.value_; }
  BZ_HD constexpr auto operator<=>(StrongId other) const { return value_ <=> other.value_; }

 private:
  Rep value_{};
};

}  // namespace bz

template <class Tag, class Rep>
struct std::hash<bz::StrongId<Tag, Rep>> {
  std::size_t operator()(const bz::StrongId<Tag, Rep>& id) const { return std::hash<Rep>{}(id.value()); }
};
