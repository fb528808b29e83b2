// Command-line options that several commands share.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "engine/loaded_model.h"

namespace bz::cli {

// What the user typed for the engine; strings until checked.
struct EngineOptions {
  engine::LoadOptions load;
  std::string graphs = "auto";
  std::string null_guard = "read-only";
  std::string kv_dtype = "auto";
  std::string speculative;     // ngram:K
  std::string kv_cache_bytes;  // digits with an optional K, M or G
};

// Adds --device, --threads, --graphs, --kv-cache-bytes ... to a command. `options` outlives it.
void add_engine_options(CLI::App& command, EngineOptions& options);
// Checks what was typed and turns it into LoadOptions.
Result<engine::LoadOptions> to_load_options(const EngineOptions& options);

// "512M" -> 536870912. The option's name is for the message.
Result<int64_t> parse_bytes(const std::string& option, const std::string& text);

// Checks for add_option: what CLI11's own let through. Ranges that NaN is outside of; seeds neither negative nor too
// large (it would take 2^64 - 1 for both); texts that are not empty, as those of an unset shell variable are.
CLI::Validator real_range(double least, double most);
CLI::Validator seed_range();
CLI::Validator not_empty();

}  // namespace bz::cli
