#include "cli/plan.h"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace bz::cli {
namespace {

nlohmann::ordered_json to_json(const engine::ModelPlan& p) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const kv::GroupLayout& g : p.layout.groups) {
    groups.push_back({{"kind", kv::cache_kind_name(g.spec.kind)},
                      {"layers", g.layers.size()},
                      {"block_size", g.spec.block_size},
                      {"page_bytes", g.layers.empty() ? 0 : g.layers.front().page_bytes},
                      {"used_bytes", g.used_bytes}});
  }
  return {{"model", p.name},
          {"weights_bytes", p.file->bytes().size()},
          {"max_model_len", p.max_model_len},
          {"block_stride", p.layout.block_stride},
          {"num_blocks", p.layout.num_blocks},
          {"head_bytes", p.layout.head_bytes},
          {"body_bytes", p.layout.body_bytes},
          {"tail_bytes", p.layout.tail_bytes},
          {"total_bytes", p.layout.total_bytes},
          {"groups", groups},
          {"notes", p.layout.notes}};
}

}  // namespace

void add_plan_options(CLI::App& command, PlanOptions& o) {
  command.add_option("model", o.engine.load.model_path, "a .gguf file")->required();
  command.add_flag("--json", o.json, "print JSON");
  add_engine_options(command, o.engine);
}

Status plan(const PlanOptions& o) {
  BZ_ASSIGN(const engine::LoadOptions load, to_load_options(o.engine));
  BZ_ASSIGN(const engine::ModelPlan p, engine::plan_model(load));
  if (o.json) {
    std::printf("%s\n", to_json(p).dump(2).c_str());
    return ok_status();
  }
  const int64_t tokens =
      p.layout.groups.empty() ? 0 : int64_t{p.layout.num_blocks - 1} * p.layout.groups.front().spec.block_size;
  std::printf("model %s: %zu bytes of weights, mapped in place; context %d tokens\n", p.name.c_str(),
              p.file->bytes().size(), p.max_model_len);
  std::printf("%s", kv::describe(p.layout).c_str());
  std::printf(
      "holds %lld tokens: %lld requests of the whole context; change it with --kv-cache-bytes, --block-size, "
      "--kv-cache-dtype\n",
      static_cast<long long>(tokens), static_cast<long long>(tokens / p.max_model_len));
  return ok_status();
}

}  // namespace bz::cli
