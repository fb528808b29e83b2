// Who may ask: API keys and origins. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bz::server {

// Takes as long for a wrong key as for a right one (of the same length).
bool same_secret(std::string_view a, std::string_view b);
// `authorization`: the header's value, "Bearer KEY". True if no key is asked for.
bool key_accepted(const std::vector<std::string>& keys, std::string_view authorization);

enum class OriginKind {
  kNone,     // not a browser's cross-origin-capable request
  kOwn,      // our own page
  kAllowed,  // by option: the answer says so in CORS headers
  kForeign,  // refused
};
// `origin` and `host`: the headers' values. `loopback`: the server listens on a loopback address; its own origin must
// then have a loopback name too, so that a name somebody else points at 127.0.0.1 does not count as ours.
OriginKind classify_origin(std::string_view origin, std::string_view host, const std::vector<std::string>& allowed,
                           bool loopback);
// Could a browser send this as an Origin ("*" aside)? Others match none, so they are a mistake.
bool can_be_origin(std::string_view text);
bool is_loopback_name(std::string_view host_without_port);

// The client's id if it is short and plain, else empty.
std::string_view sane_request_id(std::string_view value);

}  // namespace bz::server
