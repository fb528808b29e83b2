// The page at /: a chat box that streams, in one file without outside parts.
#pragma once

#include <string_view>

namespace bz::server {

std::string_view web_page();

}  // namespace bz::server
