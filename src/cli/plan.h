// blockzero plan: the memory plan of a model, without loading its weights: of a .gguf that runs, or of the config.json
// of any family whose caches are known (models/cache_specs).
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "cli/options.h"

namespace bz::cli {

struct PlanOptions {
  EngineOptions engine;
  int32_t speculative_tokens = 0;
  bool json = false;
};

void add_plan_options(CLI::App& command, PlanOptions& options);
Status plan(const PlanOptions& options);

}  // namespace bz::cli
