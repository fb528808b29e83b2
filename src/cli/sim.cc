#include "cli/sim.h"

#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/options.h"
#include "sim/simulation.h"

namespace bz::cli {
namespace {

constexpr std::chrono::seconds kProgressPeriod{5};

int32_t g_steps = 0;

// A check that fails aborts: say where, so that it can be run again.
void on_abort(int number) {
  const sim::SimPosition at = sim::current_position();
  const auto seed = static_cast<unsigned long long>(at.seed);
  char text[160];
  const int n = std::snprintf(text, sizeof(text),
                              "sim: aborted at seed %llu, step %d; again: blockzero sim --seed %llu --steps %d\n", seed,
                              at.step, seed, g_steps);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(n));
  std::signal(number, SIG_DFL);
  std::raise(number);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

nlohmann::ordered_json to_json(const sim::SimReport& total, const SimOptions& o, int64_t steps, double seconds) {
  return {{"first_seed", o.seed},
          {"seeds", o.seeds},
          {"steps", steps},
          {"requests", total.requests},
          {"refused", total.refused},
          {"forks", total.forks},
          {"tokens", total.tokens},
          {"cancelled", total.cancelled},
          {"preempted", total.preempted},
          {"prefix_hit_tokens", total.prefix_hit_tokens},
          {"draft_tokens", total.draft_tokens},
          {"accepted_tokens", total.accepted_tokens},
          {"seconds", seconds}};
}

void print(const sim::SimReport& total, const SimOptions& o, int64_t steps, double seconds) {
  if (o.json) {
    std::printf("%s\n", to_json(total, o, steps, seconds).dump(2).c_str());
    return;
  }
  if (o.seeds == 1) std::printf("%s\n", total.setting.c_str());
  std::printf(
      "%s\n",
      fmt::format("{} seeds, {} steps: {} requests, {} forks, {} tokens, {} cancelled, {} preempted, {} too large, "
                  "{} prompt tokens from the prefix cache, {} of {} drafts accepted; nothing wrong, in {:.1f} s",
                  o.seeds, steps, total.requests, total.forks, total.tokens, total.cancelled, total.preempted,
                  total.refused, total.prefix_hit_tokens, total.accepted_tokens, total.draft_tokens, seconds)
          .c_str());
}

}  // namespace

void add_sim_options(CLI::App& command, SimOptions& o) {
  command.add_option("--seed", o.seed, "what to run: everything follows from it")
      ->capture_default_str()
      ->check(seed_range());
  command.add_option("--steps", o.steps, "engine steps with new requests, of each seed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000'000));
  command.add_option("--seeds", o.seeds, "how many seeds, from --seed on")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000'000));
  command.add_flag("--json", o.json, "print JSON");
}

Status sim(const SimOptions& o) {
  g_steps = o.steps;
  std::signal(SIGABRT, on_abort);
  const auto begin = std::chrono::steady_clock::now();
  auto last_progress = begin;
  sim::SimReport total;
  int64_t steps = 0;
  for (int32_t i = 0; i < o.seeds; ++i) {
    const uint64_t seed = o.seed + static_cast<uint64_t>(i);
    const sim::SimReport report = sim::simulate(seed, o.steps);
    if (!report.failure.empty()) {
      return internal_error("sim: seed {}, step {}: {} ({}); again: blockzero sim --seed {} --steps {}", seed,
                            report.step, report.failure, report.setting, seed, o.steps);
    }
    total += report;
    total.setting = report.setting;
    steps += report.step;
    if (std::chrono::steady_clock::now() - last_progress < kProgressPeriod) continue;
    last_progress = std::chrono::steady_clock::now();
    log::info("sim: {} of {} seeds, {:.0f} s", i + 1, o.seeds, seconds_since(begin));
  }
  print(total, o, steps, seconds_since(begin));
  return ok_status();
}

}  // namespace bz::cli
