// Options from a file: `name = value` a line, TOML's strings, numbers, lists and comments. (CLI11 2.1 reads such files
// for the whole program only, not for one of its commands.)
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace bz::cli {

// Sets every option of the command that the file names and neither the command line nor the environment has set.
// REQUIRES: the command is parsed. Errors (one line): the file, an option that there is not, a value that it refuses.
Status apply_config_file(CLI::App& command, const std::string& path);

}  // namespace bz::cli
