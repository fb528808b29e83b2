// blockzero bench engine: how fast a model decodes on this machine, one request or many at once, greedy, through the
// engine.
//
// Decode speed counts from the step in which every request has its first token. Each repeat is a run of its own, in one
// process; the median is reported. On a device that runs beside the host one more run, with events around every step,
// says how long a step takes the device, how long it idles between two, and what the host does besides waiting.
#pragma once

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "cli/options.h"

namespace bz::cli {

struct BenchEngineOptions {
  EngineOptions engine;
  int rows = 1, prompt = 32, new_tokens = 256, repeats = 5;
  double churn = 0;
  bool json = false;
};

void add_bench_engine_options(CLI::App& command, BenchEngineOptions& options);
Status bench_engine(const BenchEngineOptions& options);

}  // namespace bz::cli
