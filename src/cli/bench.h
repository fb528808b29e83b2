// blockzero bench: the speed of an OpenAI server, as its clients see it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace bz::cli {

struct BenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string model;  // empty: the first that the server lists
  std::string api_key;
  int32_t in_len = 1024;
  int32_t out_len = 128;
  uint64_t seed_offset = 0;
  double timeout_seconds = 600;
  int32_t rounds = 3;                           // single
  std::vector<int32_t> concurrency{1, 16, 64};  // batch
  int32_t requests = 0;                         // batch, at each level; 0: twice the concurrency
  std::string save;                             // writes SAVE.json and SAVE.svg
  bool json = false;
};

// Adds `bench single` and `bench batch`. `options` outlives the command.
void add_bench_options(CLI::App& command, BenchOptions& options);
Status bench_single(const BenchOptions& options);
Status bench_batch(const BenchOptions& options);

}  // namespace bz::cli
