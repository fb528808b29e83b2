// A cache layout for people to read.
#pragma once

#include <string>

#include "kv/layout.h"

namespace bz::cli {

// Several lines of text, every byte accounted for.
std::string describe(const kv::Layout& layout);

}  // namespace bz::cli
