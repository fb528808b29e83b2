// blockzero: the command line. One file per command; this one parses and maps a Status to an exit code:
// 0, 1 for a fault of ours, 2 for bad input.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/status.h"
#include "cli/bench.h"
#include "cli/bench_engine.h"
#include "cli/config_file.h"
#include "cli/inspect.h"
#include "cli/plan.h"
#include "cli/replay.h"
#include "cli/run.h"
#include "cli/serve.h"
#include "cli/sim.h"

namespace {

constexpr int kExitBadInput = 2;

// A full disk or a closed descriptor shows when the last of the output is written, or earlier. What was asked for did
// not arrive then, so that is no success.
bz::Status output_status() {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return bz::ok_status();
  return {bz::StatusCode::kUnavailable,
          fmt::format("standard output cannot be written{}", flushed ? "" : fmt::format(": {}", std::strerror(errno)))};
}

int report(const bz::Status& status) {
  if (!status.ok()) bz::log::error("{}", status.message());
  return status.exit_code();
}

// Of a command whose result is what it printed.
int report_printed(const bz::Status& status) { return report(status.ok() ? output_status() : status); }

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Blockzero: LLM inference whose null block stays zero");
  app.require_subcommand(1);
  app.set_version_flag("--version", BLOCKZERO_VERSION);

  bz::cli::RunOptions run_options;
  CLI::App* run = app.add_subcommand("run", "one answer, streamed");
  bz::cli::add_run_options(*run, run_options);

  bz::cli::ServeOptions serve_options;
  CLI::App* serve = app.add_subcommand("serve", "OpenAI-compatible server, web page at /");
  bz::cli::add_serve_options(*serve, serve_options);

  bz::cli::PlanOptions plan_options;
  CLI::App* plan = app.add_subcommand("plan", "the memory plan, without loading weights");
  bz::cli::add_plan_options(*plan, plan_options);

  bz::cli::ReplayOptions replay_options;
  CLI::App* replay = app.add_subcommand("replay", "run the steps of a device fault again, op by op");
  bz::cli::add_replay_options(*replay, replay_options);

  bz::cli::InspectOptions inspect_options;
  CLI::App* inspect = app.add_subcommand("inspect", "what is in a model file");
  bz::cli::add_inspect_options(*inspect, inspect_options);

  bz::cli::BenchOptions bench_options;
  CLI::App* bench = app.add_subcommand("bench", "the speed of an OpenAI server: single or batch; of the engine alone");
  bz::cli::add_bench_options(*bench, bench_options);
  bz::cli::BenchEngineOptions bench_engine_options;
  CLI::App* bench_engine = bench->add_subcommand("engine", "how fast a model decodes here, without a server");
  bz::cli::add_bench_engine_options(*bench_engine, bench_engine_options);

  bz::cli::SimOptions sim_options;
  CLI::App* sim = app.add_subcommand("sim", "the engine on a device that computes nothing, with made-up traffic");
  bz::cli::add_sim_options(*sim, sim_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      app.exit(e);
      return report_printed(bz::ok_status());
    }
    // CLI11 calls an unknown command a missing one.
    const bool unknown = argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty();
    bz::log::error("{}; see blockzero --help", unknown ? fmt::format("unknown command '{}'", argv[1]) : e.what());
    return kExitBadInput;
  }
  if (run->parsed()) return report_printed(bz::cli::run(run_options));
  if (serve->parsed()) {
    if (!serve_options.config.empty()) {
      const bz::Status status = bz::cli::apply_config_file(*serve, serve_options.config);
      if (!status.ok()) return report(status);
    }
    return report(bz::cli::serve(serve_options));
  }
  if (replay->parsed()) return report_printed(bz::cli::replay(replay_options));
  if (plan->parsed()) return report_printed(bz::cli::plan(plan_options));
  if (bench_engine->parsed()) return report_printed(bz::cli::bench_engine(bench_engine_options));
  if (bench->parsed()) {
    const bool single = bench->got_subcommand("single");
    return report_printed(single ? bz::cli::bench_single(bench_options) : bz::cli::bench_batch(bench_options));
  }
  if (sim->parsed()) return report_printed(bz::cli::sim(sim_options));
  return report_printed(bz::cli::inspect(inspect_options));
}
