// What a benchmark run found: one level per concurrency (or per round), as a table, as JSON and as a plot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loadgen/load.h"
#include "loadgen/stats.h"

#include <nlohmann/json_fwd.hpp>

namespace bz::loadgen {

struct Level {
  std::string name;  // "64 at once", "round 2"
  int32_t concurrency = 0;
  size_t requests = 0;
  size_t failed = 0;
  std::string first_error;
  double seconds = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  Summary ttft, itl, tpot, e2e;  // seconds, of the requests that went well

  double output_rate() const { return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0; }
  double total_rate() const { return seconds > 0 ? static_cast<double>(prompt_tokens + output_tokens) / seconds : 0; }
  double request_rate() const { return seconds > 0 ? static_cast<double>(requests - failed) / seconds : 0; }
};
Level make_level(std::string name, int32_t concurrency, const LoadResult& result);

struct Report {
  std::string kind;  // "single" or "batch"
  std::string url, model;
  int32_t in_len = 0, out_len = 0;
  uint64_t seed_offset = 0;
  bool exact_prompts = false;
  std::vector<Level> levels;
};
std::string table(const Report& report);
nlohmann::ordered_json to_json(const Report& report);
// Three charts over the levels: output tokens per second, time to the first token, time between tokens.
std::string to_svg(const Report& report);

}  // namespace bz::loadgen
