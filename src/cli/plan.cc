#include "cli/plan.h"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/plan_text.h"
#include "models/cache_specs.h"

namespace bz::cli {
namespace {

// What both kinds of model say about themselves.
struct Planned {
  std::string name;
  int64_t weights_bytes = 0;  // 0: there is a config only
  int32_t max_model_len = 0;
  int32_t num_spec = 0;
  kv::Layout layout;
};

// A config.json's cache is planned for a GPU of the usual size.
constexpr int64_t kConfigCacheBytes = int64_t{64} << 30;
constexpr int64_t kConfigGranule = 2 << 20;
constexpr int32_t kConfigMaxLen = 1 << 20;  // where the config has none
constexpr int32_t kTypicalTokens = 8192;

Result<Planned> plan_config(const PlanOptions& o, const engine::LoadOptions& load) {
  BZ_ASSIGN(const models::HfConfig config, models::HfConfig::open(load.model_path));
  BZ_ASSIGN(const int32_t context, models::max_context(config));
  Planned p;
  p.name = config.model_type();
  p.num_spec = o.speculative_tokens;
  p.max_model_len = context > 0 ? context : kConfigMaxLen;
  if (load.max_model_len < 0 || load.max_model_len > p.max_model_len)
    return invalid_argument("--max-model-len {}: {} is made for 1 to {} tokens", load.max_model_len, config.name(),
                            p.max_model_len);
  if (load.max_model_len > 0) p.max_model_len = load.max_model_len;
  kv::LayoutRequest request;
  BZ_ASSIGN(request.layers, models::cache_specs(config, {load.kv_dtype.value_or(DType::kBF16), p.num_spec}));
  request.cache_bytes = load.kv_cache_bytes > 0 ? load.kv_cache_bytes : kConfigCacheBytes;
  request.granule = kConfigGranule;
  request.block_size = load.block_size;
  request.num_spec = p.num_spec;
  BZ_ASSIGN(p.layout, kv::make_layout(request));
  return p;
}

Result<Planned> plan_gguf(const PlanOptions& o, const engine::LoadOptions& load) {
  if (o.speculative_tokens > 0)
    return invalid_argument("--speculative-tokens {}: changes nothing for {}", o.speculative_tokens, load.model_path);
  BZ_ASSIGN(engine::ModelPlan p, engine::plan_model(load));
  return Planned{p.name, static_cast<int64_t>(p.file->bytes().size()), p.max_model_len, 0, std::move(p.layout)};
}

// A typical request, and one of the whole context.
std::vector<int32_t> request_sizes(const Planned& p) {
  if (p.max_model_len <= kTypicalTokens) return {p.max_model_len};
  return {kTypicalTokens, p.max_model_len};
}

nlohmann::ordered_json to_json(const Planned& p) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const kv::GroupLayout& g : p.layout.groups) {
    groups.push_back({{"kind", kv::cache_kind_name(g.spec.kind)},
                      {"layers", g.layers.size()},
                      {"block_size", g.spec.block_size},
                      {"page_bytes", g.layers.empty() ? 0 : g.layers.front().page_bytes},
                      {"used_bytes", g.used_bytes}});
    if (g.spec.table_of != kv::kOwnTable) groups.back()["table_of"] = g.spec.table_of;
  }
  nlohmann::ordered_json requests = nlohmann::ordered_json::array();
  for (const int32_t tokens : request_sizes(p)) {
    const kv::RequestBytes bytes = kv::bytes_of_request(p.layout, tokens, p.num_spec);
    requests.push_back({{"tokens", tokens}, {"bytes", bytes.taken}, {"used_bytes", bytes.used}});
  }
  return {{"model", p.name},
          {"weights_bytes", p.weights_bytes},
          {"max_model_len", p.max_model_len},
          {"block_stride", p.layout.block_stride},
          {"num_blocks", p.layout.num_blocks},
          {"head_bytes", p.layout.head_bytes},
          {"body_bytes", p.layout.body_bytes},
          {"tail_bytes", p.layout.tail_bytes},
          {"total_bytes", p.layout.total_bytes},
          {"groups", groups},
          {"requests", requests},
          {"notes", p.layout.notes}};
}

void print_requests(const Planned& p, bool default_size) {
  for (const int32_t tokens : request_sizes(p)) {
    const kv::RequestBytes bytes = kv::bytes_of_request(p.layout, tokens, p.num_spec);
    std::printf("a request of %d tokens: %lld bytes, %.1f %% waste; %lld fit\n", tokens,
                static_cast<long long>(bytes.taken), bytes.waste() * 100,
                static_cast<long long>(p.layout.body_bytes / bytes.taken));
  }
  if (default_size)
    std::printf("the size is plan's default: on a GPU, run and serve choose it by what is free there (--help)\n");
  std::printf("change it with --kv-cache-bytes, --block-size, --kv-cache-dtype, --max-model-len\n");
}

}  // namespace

void add_plan_options(CLI::App& command, PlanOptions& o) {
  command
      .add_option("model", o.engine.load.model_path,
                  "a .gguf file, or a config.json (or its folder) of: " + models::known_cache_families())
      ->required();
  command.add_flag("--json", o.json, "print JSON");
  command.add_option("--speculative-tokens", o.speculative_tokens, "config.json: tokens speculated per step")
      ->check(CLI::Range(0, 64));
  add_engine_options(command, o.engine);
}

Status plan(const PlanOptions& o) {
  BZ_ASSIGN(const engine::LoadOptions load, to_load_options(o.engine));
  const bool is_config = models::HfConfig::is_one(load.model_path);
  BZ_ASSIGN(const Planned p, is_config ? plan_config(o, load) : plan_gguf(o, load));
  if (o.json) {
    std::printf("%s\n", to_json(p).dump(2).c_str());
    return ok_status();
  }
  std::printf("model %s: %s; context %d tokens\n", p.name.c_str(),
              is_config ? "caches from its config alone"
                        : fmt::format("{} bytes of weights, mapped in place", p.weights_bytes).c_str(),
              p.max_model_len);
  std::printf("%s", describe(p.layout).c_str());
  print_requests(p, load.kv_cache_bytes == 0);
  return ok_status();
}

}  // namespace bz::cli
