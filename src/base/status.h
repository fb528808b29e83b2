// Status and Result<T>: the outside world (files, requests, options, device start-up) went wrong.
//
// A message is one line: what, where, what to do. The code decides the process's exit code and the HTTP status.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace bz {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // bad input: exit 2, HTTP 400
  kNotFound,           // a file, model or route that is not there: exit 2, HTTP 404
  kResourceExhausted,  // what was asked for does not fit: exit 2, HTTP 400 / 503
  kUnavailable,        // cannot be served now: exit 1, HTTP 503
  kInternal,           // a fault of ours: exit 1, HTTP 500
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string param = {})
      : code_(code), message_(std::move(message)), param_(std::move(param)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The request field or command-line option at fault ("max_tokens"), if one is.
  const std::string& param() const { return param_; }
  // 0, 1 (fault of ours) or 2 (bad input).
  int exit_code() const {
    if (ok()) return 0;
    return code_ == StatusCode::kInternal || code_ == StatusCode::kUnavailable ? 1 : 2;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string param_;
};

inline Status ok_status() { return {}; }

template <class... Args>
Status invalid_argument(fmt::format_string<Args...> f, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(f, std::forward<Args>(args)...)};
}
template <class... Args>
Status not_found(fmt::format_string<Args...> f, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(f, std::forward<Args>(args)...)};
}
template <class... Args>
Status resource_exhausted(fmt::format_string<Args...> f, Args&&... args) {
  return {StatusCode::kResourceExhausted, fmt::format(f, std::forward<Args>(args)...)};
}
template <class... Args>
Status internal_error(fmt::format_string<Args...> f, Args&&... args) {
  return {StatusCode::kInternal, fmt::format(f, std::forward<Args>(args)...)};
}
// Bad value of a named request field.
template <class... Args>
Status invalid_field(std::string param, fmt::format_string<Args...> f, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(f, std::forward<Args>(args)...), std::move(param)};
}

// A value or a Status that is not ok.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    BZ_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok()
  T& value() & {
    BZ_CHECK_MSG(ok(), "{}", status_.message());
    return *value_;
  }
  const T& value() const& {
    BZ_CHECK_MSG(ok(), "{}", status_.message());
    return *value_;
  }
  T&& value() && {
    BZ_CHECK_MSG(ok(), "{}", status_.message());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace bz

// BZ_TRY(expr): returns the Status from the enclosing function unless it is ok.
#define BZ_TRY(expr)                         \
  do {                                       \
    ::bz::Status bz_status_ = (expr);        \
    if (!bz_status_.ok()) return bz_status_; \
  } while (0)

#define BZ_CONCAT_INNER_(a, b) a##b
#define BZ_CONCAT_(a, b) BZ_CONCAT_INNER_(a, b)
// BZ_ASSIGN(auto x, expr): x = value of a Result, or returns its Status.
#define BZ_ASSIGN(lhs, expr) BZ_ASSIGN_IMPL_(BZ_CONCAT_(bz_result_, __LINE__), lhs, expr)
#define BZ_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.status();   \
  lhs = std::move(tmp).value()
