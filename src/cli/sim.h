// blockzero sim: the engine on the null device with made-up traffic; every failure is one integer.
#pragma once

#include <cstdint>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace bz::cli {

struct SimOptions {
  uint64_t seed = 1;
  int32_t steps = 2000;
  int32_t seeds = 1;
  bool json = false;
};

void add_sim_options(CLI::App& command, SimOptions& options);
Status sim(const SimOptions& options);

}  // namespace bz::cli
