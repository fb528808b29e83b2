// blockzero serve: the OpenAI-compatible server.
#pragma once

#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/status.h"
#include "cli/options.h"
#include "server/server.h"

namespace bz::cli {

struct ServeOptions {
  EngineOptions engine;
  server::ServerOptions server;
  int drain_seconds = 30;
  bool log_json = false;
  std::string config;      // a file of options (config_file.h)
  std::string access_log;  // a file, or "-"; empty: none
  double read_seconds = 30, idle_seconds = 75, write_seconds = 30;
};

void add_serve_options(CLI::App& command, ServeOptions& options);
// Loads the model and serves it until SIGTERM or SIGINT.
Status serve(const ServeOptions& options);

// A backend and whatever keeps it alive.
struct Served {
  std::shared_ptr<void> owner;
  server::Backend backend;
};
// The life of a server process: takes the port, calls `load` (while /health says "loading"), serves until a signal and
// lets running answers end. Ok after a drain, also one whose deadline passed. A second signal, and a signal while
// loading, end the process at once.
// Errors: the port (before anything is loaded), those of `load`, kInternal once the engine has fail-stopped.
Status run_serve(const server::ServerOptions& options, const std::function<Result<Served>()>& load);

}  // namespace bz::cli
