// Parser: tokens to a Template. Recursive descent with Jinja 2's grammar and precedence; nesting is bounded.
#pragma once

#include <memory>
#include <string_view>

#include "formats/jinja/ast.h"

namespace bz::formats::jinja {

// Throws Error with a line.
std::unique_ptr<Template> parse_template(std::string_view source);

}  // namespace bz::formats::jinja
