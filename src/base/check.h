// BZ_CHECK: programmer's faults. Always on, prints both values, aborts.
//
// Three kinds of error are never mixed (CONTRIBUTING.md):
//   a programmer's fault      -> BZ_CHECK*          (aborts)
//   an expected outcome       -> [[nodiscard]] return value
//   the outside world is bad  -> Status / Result<T> (status.h)
#pragma once

#include <string>

#include <fmt/format.h>

namespace bz {

// Prints one line and aborts. Never returns.
[[noreturn]] void check_failed(const char* file, int line, const char* what, const std::string& detail);

namespace detail {
template <class T>
std::string check_value(const T& v) {
  if constexpr (requires { v.value(); }) {
    return fmt::format("{}", v.value());
  } else if constexpr (requires { fmt::format("{}", v); }) {
    return fmt::format("{}", v);
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<long long>(v));
  } else {
    return "?";
  }
}
template <class A, class B>
[[noreturn]] void check_op_failed(const char* file, int line, const char* what, const A& a, const B& b) {
  check_failed(file, line, what, check_value(a) + " vs " + check_value(b));
}
}  // namespace detail
}  // namespace bz

#define BZ_CHECK(cond)                                              \
  do {                                                              \
    if (!(cond)) [[unlikely]]                                       \
      ::bz::check_failed(__FILE__, __LINE__, #cond, std::string()); \
  } while (0)

// BZ_CHECK_MSG(cond, fmt, args...): as BZ_CHECK, with a formatted explanation.
#define BZ_CHECK_MSG(cond, ...)                                                \
  do {                                                                         \
    if (!(cond)) [[unlikely]]                                                  \
      ::bz::check_failed(__FILE__, __LINE__, #cond, fmt::format(__VA_ARGS__)); \
  } while (0)

#define BZ_CHECK_OP_(a, op, b)                                                            \
  do {                                                                                    \
    const auto& bz_a_ = (a);                                                              \
    const auto& bz_b_ = (b);                                                              \
    if (!(bz_a_ op bz_b_)) [[unlikely]]                                                   \
      ::bz::detail::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, bz_a_, bz_b_); \
  } while (0)

#define BZ_CHECK_EQ(a, b) BZ_CHECK_OP_(a, ==, b)
#define BZ_CHECK_NE(a, b) BZ_CHECK_OP_(a, !=, b)
#define BZ_CHECK_LT(a, b) BZ_CHECK_OP_(a, <, b)
#define BZ_CHECK_LE(a, b) BZ_CHECK_OP_(a, <=, b)
#define BZ_CHECK_GT(a, b) BZ_CHECK_OP_(a, >, b)
#define BZ_CHECK_GE(a, b) BZ_CHECK_OP_(a, >=, b)
