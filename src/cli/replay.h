// blockzero replay: the steps of a fault record once more, op by op, so that the fault gets a name.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace bz::cli {

struct ReplayOptions {
  std::string path;
};

void add_replay_options(CLI::App& command, ReplayOptions& options);
Status replay(const ReplayOptions& options);

}  // namespace bz::cli
