// read_text_file(): a whole small file (a config, a record). Any kind of bad path is one line, and none blocks: a FIFO
// that nobody writes to is an empty file.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace bz::formats {

// Pipes work too (`--config <(...)`). Errors: kNotFound, kInvalidArgument; larger than `max_bytes` is one.
Result<std::string> read_text_file(const std::string& path, size_t max_bytes);

}  // namespace bz::formats
