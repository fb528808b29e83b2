// blockzero inspect: what is in a model file. Nothing is loaded, and a model that cannot be run can still be looked at.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "formats/gguf.h"

namespace bz::cli {

struct InspectOptions {
  std::string path;
  bool json = false;
};

void add_inspect_options(CLI::App& command, InspectOptions& options);
// Prints to standard output.
Status inspect(const InspectOptions& options);

// The two forms, for people and for programs; each ends with a newline.
std::string inspect_text(const formats::GgufFile& file);
std::string inspect_json(const formats::GgufFile& file);

}  // namespace bz::cli
