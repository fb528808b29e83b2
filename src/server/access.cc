#include "server/access.h"

#include <algorithm>

namespace bz::server {
namespace {

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);  // an IPv6 literal
  return host.substr(0, host.find(':'));
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) {
  // Reads all of `a` whatever differs; the length alone may show.
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

bool key_accepted(const std::vector<std::string>& keys, std::string_view authorization) {
  if (keys.empty()) return true;
  constexpr std::string_view kScheme = "bearer ";
  if (!equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  const std::string_view key = authorization.substr(kScheme.size());
  bool accepted = false;
  for (const std::string& candidate : keys) accepted = same_secret(key, candidate) | accepted;
  return accepted;
}

bool can_be_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return false;
  const std::string_view host = text.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?#@* \t") == std::string_view::npos;
}

bool is_loopback_name(std::string_view host) {
  return equal_ignoring_case(host, "localhost") || host == "[::1]" || host == "::1" || host.starts_with("127.");
}

OriginKind classify_origin(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed,
                           bool loopback) {
  if (origin.empty()) return OriginKind::kNone;
  std::string_view origin_host = origin;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) origin_host = origin.substr(scheme.size());
  }
  const bool same = origin_host.size() < origin.size() && !host.empty() && equal_ignoring_case(origin_host, host);
  if (same && (!loopback || is_loopback_name(without_port(host)))) return OriginKind::kOwn;
  for (const std::string& candidate : allowed) {
    if (candidate == "*" || equal_ignoring_case(candidate, origin)) return OriginKind::kAllowed;
  }
  return OriginKind::kForeign;
}

std::string_view sane_request_id(std::string_view value) {
  if (value.size() > 128) return {};
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  });
  return plain ? value : std::string_view{};
}

}  // namespace bz::server
