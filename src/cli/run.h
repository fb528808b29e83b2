// blockzero run: one answer, streamed.
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "cli/options.h"

namespace bz::cli {

struct RunOptions {
  EngineOptions engine;
  std::string prompt;
  int32_t max_tokens = 128;
  bool chat = false;
  std::string system;  // with --chat
  float temperature = 0.0f;
  float top_p = 1.0f;
  int32_t top_k = 0;
  float min_p = 0.0f;
  uint64_t seed = 0;
  bool ignore_eos = false;
  bool json = false;
};

void add_run_options(CLI::App& command, RunOptions& options);
Status run(const RunOptions& options);

}  // namespace bz::cli
