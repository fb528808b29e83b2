#include "cli/bench.h"

#include <unistd.h>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/options.h"
#include "loadgen/load.h"
#include "loadgen/prompts.h"
#include "loadgen/report.h"

namespace bz::cli {
namespace {

using loadgen::Level;
using loadgen::Progress;

// One line that is overwritten on a terminal; elsewhere a line every few seconds.
class ProgressLine {
 public:
  explicit ProgressLine(std::string name) : name_(std::move(name)), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (terminal_ && shown_) std::fprintf(stderr, "\r\033[K");
  }
  void show(const Progress& p) {
    const bool last = p.done == p.total;
    if (!terminal_ && !last && p.seconds < next_) return;
    next_ = p.seconds + kQuietSeconds;
    shown_ = true;
    std::fprintf(stderr, "%s%s: %zu of %zu requests, %zu running, %lld events, %.0f s%s", terminal_ ? "\r\033[K" : "",
                 name_.c_str(), p.done, p.total, p.running, static_cast<long long>(p.events), p.seconds,
                 terminal_ ? "" : "\n");
  }

 private:
  static constexpr double kQuietSeconds = 5;
  std::string name_;
  bool terminal_;
  bool shown_ = false;
  double next_ = kQuietSeconds;
};

struct Bench {
  loadgen::Target target;
  loadgen::PromptMaker prompts;
  loadgen::Report report;
  uint64_t next_seed = 0;
};

std::string json_path(const BenchOptions& o) { return o.save + ".json"; }

// Said now, not when the run is over. What a file holds stays.
Status check_save(const BenchOptions& o) {
  if (o.save.empty() || std::ofstream(json_path(o), std::ios::app)) return ok_status();
  return invalid_argument("--save: cannot write {}", json_path(o));
}

Status start(Bench& b, const BenchOptions& o, const char* kind) {
  BZ_TRY(check_save(o));
  BZ_ASSIGN(b.target.endpoint, loadgen::parse_url(o.url));
  b.target.api_key = o.api_key;
  b.target.timeout_seconds = o.timeout_seconds;
  b.target.model = o.model;
  if (o.model.empty()) {
    BZ_ASSIGN(b.target.model, loadgen::first_model(b.target));
  }
  BZ_ASSIGN(b.prompts, loadgen::make_prompts(b.target, o.in_len, o.out_len));
  if (!b.prompts.exact) log::warn("the server has no /tokenize: prompts are {} words, not tokens", o.in_len);
  b.report = {kind, o.url, b.target.model, o.in_len, o.out_len, o.seed_offset, b.prompts.exact, {}};
  b.next_seed = o.seed_offset;
  return ok_status();
}

// Runs `requests` prompts that no one has seen, `concurrency` at a time.
Status run_level(Bench& b, std::string name, int32_t concurrency, int32_t requests) {
  std::vector<std::string> bodies;
  for (int32_t i = 0; i < requests; ++i) {
    BZ_ASSIGN(std::string body, b.prompts.body(b.next_seed++));
    bodies.push_back(std::move(body));
  }
  ProgressLine line(name);
  BZ_ASSIGN(const loadgen::LoadResult result,
            loadgen::run_load(b.target, bodies, concurrency, [&](const Progress& p) { line.show(p); }));
  b.report.levels.push_back(make_level(std::move(name), concurrency, result));
  return ok_status();
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  return out ? ok_status() : invalid_argument("--save: cannot write {}", path);
}

// Prints and saves. An error if requests failed: what was measured is not what was asked for.
Status finish(const Bench& b, const BenchOptions& o) {
  const std::string json = loadgen::to_json(b.report).dump(2) + "\n";
  std::printf("%s", o.json ? json.c_str() : loadgen::table(b.report).c_str());
  std::fflush(stdout);
  if (!o.save.empty()) {
    BZ_TRY(write_file(json_path(o), json));
    BZ_TRY(write_file(o.save + ".svg", loadgen::to_svg(b.report)));
  }
  for (const Level& l : b.report.levels) {
    if (l.failed > 0) {
      return Status(StatusCode::kUnavailable, fmt::format("{}: {} of {} requests failed; the first: {}", l.name,
                                                          l.failed, l.requests, l.first_error));
    }
  }
  return ok_status();
}

void add_common(CLI::App& command, BenchOptions& o) {
  command.add_option("--url", o.url, "the server, any that speaks OpenAI's API over http")->capture_default_str();
  command.add_option("--model", o.model, "default: the first that the server lists");
  command.add_option("--api-key", o.api_key, "sent as Authorization: Bearer KEY")->envname("BLOCKZERO_API_KEY");
  command.add_option("--in-len", o.in_len, "tokens of a prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--out-len", o.out_len, "tokens of an answer")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--seed-offset", o.seed_offset, "first seed of the prompts: another one, other prompts")
      ->capture_default_str()
      ->check(seed_range());
  command.add_option("--timeout", o.timeout_seconds, "seconds for one answer")
      ->capture_default_str()
      ->check(real_range(0.1, 86400.0));
  command.add_option("--save", o.save, "write NAME.json and NAME.svg");
  command.add_flag("--json", o.json, "print JSON");
}

}  // namespace

void add_bench_options(CLI::App& command, BenchOptions& o) {
  command.require_subcommand(1);
  CLI::App* single = command.add_subcommand("single", "one stream at a time");
  add_common(*single, o);
  single->add_option("--rounds", o.rounds, "requests, one after the other")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  CLI::App* batch = command.add_subcommand("batch", "many streams at once");
  add_common(*batch, o);
  batch->add_option("--concurrency", o.concurrency, "streams at once, with commas: a level each")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  batch->add_option("--requests", o.requests, "requests at each level; default: twice the concurrency")
      ->check(CLI::Range(1, 10'000'000));
}

Status bench_single(const BenchOptions& o) {
  Bench b;
  BZ_TRY(start(b, o, "single"));
  for (int32_t round = 1; round <= o.rounds; ++round) {
    BZ_TRY(run_level(b, fmt::format("round {}", round), 1, 1));
  }
  return finish(b, o);
}

Status bench_batch(const BenchOptions& o) {
  Bench b;
  BZ_TRY(start(b, o, "batch"));
  for (const int32_t concurrency : o.concurrency) {
    BZ_TRY(run_level(b, fmt::format("{} at once", concurrency), concurrency,
                     o.requests > 0 ? o.requests : 2 * concurrency));
  }
  return finish(b, o);
}

}  // namespace bz::cli
