// JSON at the edge: hostile bodies in, strings out. Include <nlohmann/json.hpp> only where values are touched.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace bz::server {

using Json = nlohmann::json;

// Parses a whole body. Nothing deeper than kMaxJsonDepth is built. Never throws for what the body holds: bad syntax,
// NaN, numbers out of range and invalid UTF-8 are kInvalidArgument with the byte they were found at.
Result<Json> parse_json(std::string_view body);
inline constexpr int kMaxJsonDepth = 64;

// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);

// `value` for an error message: its JSON text, cut to a readable length.
std::string shown(const Json& value);

}  // namespace bz::server
