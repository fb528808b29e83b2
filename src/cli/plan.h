// blockzero plan: the memory plan of a model, without loading its weights.
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "cli/options.h"

namespace bz::cli {

struct PlanOptions {
  EngineOptions engine;
  bool json = false;
};

void add_plan_options(CLI::App& command, PlanOptions& options);
Status plan(const PlanOptions& options);

}  // namespace bz::cli
