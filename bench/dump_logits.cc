// Teacher-forced logits of our path, for the accuracy half of B11 (bench/run.py compares them with compare_logits).
//
//   dump_logits MODEL.gguf IDS OUT [--chunk N] [--threads N]
//
// IDS: raw little-endian int32, one per token. OUT: raw little-endian float32 [num_ids, vocab]; row i are the logits
// after ids[0..i]. The same formats as the peer's llama_logits. --chunk N: tokens per step; no value changes a bit
// (PAD-9b). BLOCKZERO_ISA chooses the instruction set.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "engine/loaded_model.h"

namespace bz::bench {
namespace {

struct Options {
  std::string model, ids, out;
  int32_t chunk = 64;
  int threads = 0;
};

Result<std::vector<int32_t>> read_ids(const std::string& path, int32_t vocab) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return not_found("{}: cannot be read", path);
  const std::streamoff bytes = in.tellg();
  if (bytes <= 0 || bytes % 4 != 0) return invalid_argument("{}: not a list of int32", path);
  std::vector<int32_t> ids(static_cast<size_t>(bytes / 4));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(ids.data()), bytes);
  for (int32_t id : ids) {
    if (id < 0 || id >= vocab) return invalid_argument("{}: id {} is outside the vocabulary", path, id);
  }
  return ids;
}

// One step over ids[done, done + count) of a row, logits of all its tokens appended to `out`.
Status run_chunk(engine::LoadedModel& model, kv::CacheManager& cache, kv::RowId row, std::span<const int32_t> tokens,
                 std::ofstream& out) {
  const auto count = static_cast<int32_t>(tokens.size());
  if (!cache.can_append(row, count)) return resource_exhausted("the cache is too small for so many ids");
  cache.append(row, count);
  engine::StepPlan plan;
  BZ_CHECK(cache.take_plan(plan.cache));
  engine::PlanRow& plan_row = plan.rows.emplace_back();
  plan_row.row = row;
  plan_row.query_len = count;
  plan_row.num_logits = count;
  plan_row.max_seq_len = cache.num_scheduled(row);
  plan.tokens.assign(tokens.begin(), tokens.end());
  model.runner().run(plan);
  const engine::StepResult result = model.runner().wait(plan.cache.sequence);
  cache.processed(plan.cache.sequence);
  if (result.error != ops::StepError::kNone) return internal_error("step {} failed", plan.cache.sequence);
  const ops::TensorRef logits = model.runner().logits(result.key);
  std::vector<float> host(static_cast<size_t>(count) * static_cast<size_t>(logits.cols));
  model.device().copy_to_host(host.data(), logits.data, host.size() * sizeof(float));
  out.write(reinterpret_cast<const char*>(host.data()), static_cast<std::streamsize>(host.size() * sizeof(float)));
  return ok_status();
}

Status run(const Options& o) {
  engine::LoadOptions load;
  load.model_path = o.model;
  load.device.num_threads = o.threads;
  load.max_num_seqs = 1;
  load.max_num_batched_tokens = o.chunk;
  BZ_ASSIGN(const auto model, engine::LoadedModel::load(load));
  BZ_ASSIGN(const std::vector<int32_t> ids, read_ids(o.ids, model->info().vocab_size));
  std::ofstream out(o.out, std::ios::binary);
  // The runner alone is used: the engine's own cache manager never takes a plan, so the sequence numbers are ours.
  kv::CacheManager cache(model->runner().config().cache);
  const kv::RowId row = cache.admit();
  for (size_t done = 0; done < ids.size(); done += static_cast<size_t>(o.chunk)) {
    const size_t count = std::min(ids.size() - done, static_cast<size_t>(o.chunk));
    BZ_TRY(run_chunk(*model, cache, row, std::span(ids).subspan(done, count), out));
  }
  out.close();
  if (!out) return invalid_argument("cannot write {}", o.out);
  fmt::print("{{\"isa\": \"{}\", \"num_ids\": {}, \"chunk\": {}}}\n", model->isa(), ids.size(), o.chunk);
  return ok_status();
}

}  // namespace
}  // namespace bz::bench

int main(int argc, char** argv) {
  bz::bench::Options o;
  CLI::App app("Teacher-forced logits");
  app.add_option("model", o.model, "a .gguf file")->required();
  app.add_option("ids", o.ids, "int32 ids")->required();
  app.add_option("out", o.out, "float32 logits")->required();
  app.add_option("--chunk", o.chunk, "tokens per step")->check(CLI::Range(1, 512));
  app.add_option("--threads", o.threads, "0: one per core");
  CLI11_PARSE(app, argc, argv);
  const bz::Status status = bz::bench::run(o);
  if (!status.ok()) fmt::print(stderr, "dump_logits: {}\n", status.message());
  return status.exit_code();
}
