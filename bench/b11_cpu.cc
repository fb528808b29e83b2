// B11: inference on the CPU, in one process: decode alone, prefill, decode of 8 and 32 at once, first token.
//
//   b11_cpu MODEL.gguf [--threads N] [--rounds N] [--only tg128,pp512,...] [--b0 FILE] [--json FILE] [--profile]
//
// --b0 FILE: the JSON of b0_cpu; adds the share of the limit. --profile: time per op instead (op_timer.h).
// BLOCKZERO_ISA chooses the instruction set. The peer runs beside this in bench/run.py, rounds interleaved.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "inference/op_timer.h"
#include "inference/workload.h"
#include "models/llama.h"

namespace bz::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  int threads = 0;
  int rounds = 3;
  std::vector<std::string> only;
  std::string b0_path, json_path;
  bool profile = false;
};

engine::LoadOptions load_options(const Options& o) {
  engine::LoadOptions load;
  load.model_path = o.model;
  load.device.num_threads = o.threads;
  load.max_num_seqs = kMaxRows;
  load.max_num_batched_tokens = kMaxBatchedTokens;
  load.max_model_len = kMaxModelLen;
  return load;
}

std::vector<Workload> chosen(const Options& o) {
  std::vector<Workload> workloads;
  for (Workload& w : all_workloads()) {
    if (o.only.empty() || std::ranges::find(o.only, w.name) != o.only.end()) workloads.push_back(std::move(w));
  }
  return workloads;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The least seconds by B0: bytes over the read rate, or operations over the fastest dot product.
double limit_seconds(const Measurement& m, const Json& b0) {
  double gops = 0;
  for (const Json& r : b0.at("compute_gop_per_s")) gops = std::max(gops, r.at("all").get<double>());
  const auto gb = b0.at("memory_gb_per_s").at("read_all").get<double>();
  return std::max(m.bytes / gb, m.ops / gops) / 1e9;
}

Json measure(engine::LoadedModel& model, const Options& o) {
  const ModelWork work = model_work(model);
  Json b0;
  if (!o.b0_path.empty()) b0 = Json::parse(std::ifstream(o.b0_path));
  Json results;
  for (const Workload& w : chosen(o)) {
    w.run({model.core(), work});  // records the graphs, touches the cache
    std::vector<double> seconds;
    Measurement m;
    for (int i = 0; i < o.rounds; ++i) seconds.push_back((m = w.run({model.core(), work})).seconds);
    const double t = median(seconds);
    fmt::print("{:<8} {:>9.2f} ms  {:>8.1f} tok/s  {:>6.1f} GB/s  {:>7.1f} GOP/s", w.name, t * 1e3, m.tokens / t,
               m.bytes / t / 1e9, m.ops / t / 1e9);
    if (!b0.is_null()) fmt::print("  {:.2f} of the limit", limit_seconds(m, b0) / t);
    fmt::print("\n");
    results[w.name] = {{"tokens", m.tokens}, {"bytes", m.bytes}, {"ops", m.ops}, {"seconds", seconds}};
  }
  return results;
}

// A second engine over the same file, whose op table is the timer's.
Status profile(engine::LoadedModel& loaded, const Options& o) {
  const engine::ModelPlan& plan = loaded.plan();
  const ModelWork work = model_work(loaded);
  BZ_ASSIGN(const ops::OpTable* table, ops::op_table_for(loaded.device().kind()));
  OpTimer timer(*table);
  BZ_ASSIGN(const auto model, models::make_llama(*plan.file, plan.config, timer.table(), *plan.options.kv_dtype));
  const engine::RunnerConfig config = loaded.runner().config();
  BZ_ASSIGN(const auto runner,
            engine::GraphRunner::create(loaded.device(), timer.table(), *model, plan.layout, config));
  engine::SchedulerConfig scheduler{kMaxRows, kMaxBatchedTokens, kMaxModelLen, {}};
  engine::EngineCore core(*runner, scheduler, config.cache, nullptr);
  for (const Workload& w : chosen(o)) {
    const Bench bench{core, work, &timer};
    w.run(bench);
    timer.reset();
    const Measurement m = w.run(bench);
    fmt::print("\n== {}: {:.1f} tok/s while timed, {} steps\n", w.name, m.tokens / m.seconds, m.steps);
    fmt::print("{}", timer.report(m.steps));
  }
  return ok_status();
}

Status run(const Options& o) {
  BZ_ASSIGN(const auto model, engine::LoadedModel::load(load_options(o)));
  fmt::print("{}: {}, {}\n", model->info().model_name, model->device().description(), model->isa());
  if (o.profile) return profile(*model, o);
  const Json results = measure(*model, o);
  if (o.json_path.empty()) return ok_status();
  std::ofstream out(o.json_path);
  out << Json{{"isa", model->isa()}, {"workloads", results}}.dump(2) << "\n";
  return out.flush() ? ok_status() : invalid_argument("cannot write {}", o.json_path);
}

}  // namespace
}  // namespace bz::bench

int main(int argc, char** argv) {
  bz::bench::Options o;
  CLI::App app("B11: inference on the CPU");
  app.add_option("model", o.model, "a .gguf file")->required();
  app.add_option("--threads", o.threads, "0: one per core");
  app.add_option("--rounds", o.rounds, "measured repeats of each workload")->check(CLI::Range(1, 1000));
  app.add_option("--only", o.only, "workloads by name")->delimiter(',');
  app.add_option("--b0", o.b0_path, "JSON of b0_cpu")->check(CLI::ExistingFile);
  app.add_option("--json", o.json_path, "results");
  app.add_flag("--profile", o.profile, "time per op");
  CLI11_PARSE(app, argc, argv);
  const bz::Status status = bz::bench::run(o);
  if (!status.ok()) fmt::print(stderr, "b11_cpu: {}\n", status.message());
  return status.exit_code();
}
