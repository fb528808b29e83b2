#include "engine/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "base/log.h"
#include "device/fault_hook.h"
#include "engine/cache_size.h"
#include "engine/flight_recorder.h"
#include "models/hf_config.h"
#include "models/llama.h"
#include "models/random_weights.h"

namespace bz::engine {
namespace {

constexpr int64_t kCudaGranule = 2 << 20;
constexpr std::chrono::milliseconds kFaultGrace{200};  // for a server's threads to send the errors
constexpr int32_t kDefaultMaxNumSeqs = 32;
constexpr int32_t kDefaultMaxNumBatchedTokens = 512;
constexpr int32_t kMaxNumSeqs = 4096;
constexpr int32_t kMaxNumBatchedTokens = 65536;

// Seconds since the last call.
class PhaseClock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Status check_range(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok_status();
  return invalid_argument("{} {}: must be between {} and {}", option, value, low, high);
}

std::string model_name(const LoadOptions& options, const models::ModelConfig& config) {
  if (!options.served_model_name.empty()) return options.served_model_name;
  if (!config.basename.empty()) return config.basename;
  return std::filesystem::path(options.model_path).stem().string();
}

// What a device says of memory that it does not have, with the way out.
template <class T>
Result<T> or_use(Result<T> made, const char* way_out) {
  if (made.ok() || made.status().code() != StatusCode::kResourceExhausted) return made;
  return Status(StatusCode::kResourceExhausted, fmt::format("{}; {}", made.status().message(), way_out));
}

bool on_cpu(const LoadOptions& o) { return o.device.name == "cpu"; }

// Fills in what was left to us, and refuses what makes no sense.
Status complete_options(LoadOptions& o, const models::ModelConfig& config) {
  if (o.max_num_seqs == 0) o.max_num_seqs = kDefaultMaxNumSeqs;
  if (o.max_num_batched_tokens == 0) o.max_num_batched_tokens = std::max(kDefaultMaxNumBatchedTokens, o.max_num_seqs);
  if (o.max_model_len == 0) o.max_model_len = config.context_length;
  if (!o.kv_dtype) o.kv_dtype = on_cpu(o) ? DType::kF16 : DType::kBF16;
  BZ_TRY(check_range("--max-num-seqs", o.max_num_seqs, 1, kMaxNumSeqs));
  BZ_TRY(check_range("--max-num-batched-tokens", o.max_num_batched_tokens, o.max_num_seqs, kMaxNumBatchedTokens));
  BZ_TRY(check_range("--max-model-len", o.max_model_len, 2, config.context_length));
  BZ_TRY(check_range("--speculative ngram:", o.num_draft_tokens, 0, ops::kMaxDraftTokens));
  if (o.block_size != 0) BZ_TRY(check_range("--block-size", o.block_size, 1, 4096));
  return ok_status();
}

}  // namespace

Result<ModelPlan> plan_model(const LoadOptions& options) {
  ModelPlan plan;
  plan.options = options;
  if (!options.random_weights && models::HfConfig::is_one(options.model_path)) {
    BZ_ASSIGN(const models::HfConfig config, models::HfConfig::open(options.model_path));
    return invalid_argument(
        "{}: running '{}' from a Hugging Face folder is not supported yet (supported: a .gguf of {})", config.name(),
        config.model_type(), models::kSupportedArchitectures);
  }
  BZ_ASSIGN(formats::GgufFile file, options.random_weights ? models::random_llama(options.model_path, on_cpu(options))
                                                           : formats::GgufFile::open(options.model_path));
  plan.file = std::make_unique<formats::GgufFile>(std::move(file));
  BZ_ASSIGN(plan.config, models::model_config_from_gguf(*plan.file));
  BZ_TRY(complete_options(plan.options, plan.config));
  plan.name = model_name(options, plan.config);
  plan.max_model_len = plan.options.max_model_len;

  plan.cache.layers = models::llama_cache_specs(plan.config, *plan.options.kv_dtype);
  plan.cache.cache_bytes = options.kv_cache_bytes > 0 ? options.kv_cache_bytes : kDefaultCacheBytes;
  plan.cache.block_size = options.block_size;
  if (options.device.name.starts_with("cuda")) plan.cache.granule = kCudaGranule;
  auto layout = kv::make_layout(plan.cache);
  if (!layout.ok()) {
    const Status& s = layout.status();
    return Status(s.code(), s.message() + "; change --kv-cache-bytes or --block-size");
  }
  plan.layout = std::move(layout).value();
  return plan;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const LoadOptions& options, const Progress& progress) {
  PhaseClock clock;
  BZ_ASSIGN(ModelPlan plan, plan_model(options));
  if (progress)
    progress(fmt::format("{}: {} bytes mapped and checked in {:.3f} s", options.model_path, plan.file->bytes().size(),
                         clock.lap()));
  std::unique_ptr<LoadedModel> loaded(new LoadedModel(std::move(plan)));
  BZ_TRY(loaded->start(progress));
  return loaded;
}

Status LoadedModel::start(const Progress& progress) {
  const auto say = [&](const std::string& line) {
    if (progress) progress(line);
  };
  const LoadOptions& o = plan_.options;
  // An option that does nothing here is said, not ignored.
  if (on_cpu(o) && o.batch_invariant) log::warn("--batch-invariant changes nothing on the CPU: it is always so there");
  if (!on_cpu(o) && o.device.num_threads != 0) log::warn("--threads changes nothing on {}", o.device.name);
  PhaseClock clock;
  BZ_ASSIGN(tokenizer_, formats::load_tokenizer(*plan_.file));
  say(fmt::format("tokenizer: {} tokens in {:.3f} s", tokenizer_->vocab_size(), clock.lap()));

  BZ_ASSIGN(device_, device::create_device(o.device));
  BZ_ASSIGN(ops_, ops::op_table_for(device_->kind(), o.batch_invariant));
  if (o.ops != nullptr) ops_ = o.ops;
  say(fmt::format("device: {}, {} in {:.3f} s", device_->description(), ops_->isa, clock.lap()));
  BZ_ASSIGN(models::WeightStore weights, or_use(models::WeightStore::create(*device_, *plan_.file, o.random_weights),
                                                "the weights do not fit: use a smaller model, or --device cpu"));
  weights_ = std::make_unique<models::WeightStore>(std::move(weights));
  BZ_ASSIGN(model_, models::make_llama(*plan_.file, plan_.config, *ops_, *o.kv_dtype, weights_.get()));
  say(fmt::format("weights: {} bytes, {} in {:.3f} s", model_->weight_bytes(),
                  weights_->in_place() ? "in place" : "copied", clock.lap()));

  RunnerConfig runner;
  runner.limits.max_tokens = o.max_num_batched_tokens;
  runner.limits.max_rows = o.max_num_seqs;
  const auto num_groups = static_cast<int32_t>(plan_.layout.groups.size());
  runner.limits.max_changes = o.max_num_seqs * (2 + 4 * num_groups) + num_groups * o.max_num_batched_tokens;
  runner.limits.max_history = plan_.max_model_len;
  const size_t biases_per_row = kMaxLogitBias + kMaxStopTokenIds + tokenizer_->end_ids().size();
  runner.limits.max_biases = o.max_num_seqs * static_cast<int32_t>(biases_per_row);
  // A CPU graph is a list made in microseconds: every step has one.
  runner.mode = on_cpu(o) && o.graphs == GraphMode::kAuto ? GraphMode::kFull : o.graphs;
  runner.cache = kv::make_cache_config(plan_.layout, o.max_num_seqs + 1, plan_.max_model_len);
  runner.cache.max_changes_per_plan = runner.limits.max_changes;
  runner.cache.num_spec = o.num_draft_tokens;
  runner.limits.max_copies = kv::max_copies_per_plan(runner.cache, o.max_num_batched_tokens);
  runner.null_guard = o.null_guard;
  const auto choose_layout = [&]() -> Result<kv::Layout> {
    BZ_TRY(size_cache(runner.cache));
    return plan_.layout;
  };
  BZ_ASSIGN(runner_, or_use(GraphRunner::create(*device_, *ops_, *model_, choose_layout, runner),
                            "use a smaller --kv-cache-bytes, --max-num-batched-tokens, --max-num-seqs or "
                            "--max-model-len"));
  say(fmt::format("cache: {} bytes, {} blocks of {} bytes, null block guard {} in {:.3f} s", plan_.layout.total_bytes,
                  plan_.layout.num_blocks - 1, plan_.layout.block_stride, device::null_guard_name(o.null_guard),
                  clock.lap()));

  SchedulerConfig scheduler;
  scheduler.max_num_seqs = o.max_num_seqs;
  scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
  scheduler.max_model_len = plan_.max_model_len;
  scheduler.vocab_size = plan_.config.vocab_size;
  scheduler.end_token_ids = tokenizer_->end_ids();
  kv::CacheConfig cache = runner_->config().cache;
  cache.prefix_cache = o.prefix_caching;
  std::random_device random;
  cache.hash_key = (uint64_t{random()} << 32) | random();  // no one can choose prompts that collide
  auto sanitizer = o.kv_sanitize ? std::make_unique<KvSanitizer>(*device_, *runner_) : nullptr;
  core_ = std::make_unique<EngineCore>(*runner_, scheduler, cache, std::move(sanitizer));
  if (o.record_faults && device_->kind() != device::DeviceKind::kCpu) {  // the CPU's fault handler names op and layer
    device::set_fault_hook([](void* self, uint64_t step) { static_cast<LoadedModel*>(self)->on_device_fault(step); },
                           this);
  }
  return ok_status();
}

// Makes the layout anew where the cache's size was left to us and the device says what it has free. What was chosen
// goes into the options: a replay of a fault has the same blocks.
Status LoadedModel::size_cache(const kv::CacheConfig& config) {
  if (plan_.options.kv_cache_bytes > 0) return ok_status();
  if (const auto free_bytes = device_->free_bytes()) {
    plan_.cache.cache_bytes = default_cache_bytes(plan_.layout, config, *free_bytes);
    auto layout = kv::make_layout(plan_.cache);
    if (!layout.ok()) {
      return invalid_argument(
          "{} has {} bytes free beside weights and buffers: {}; use a smaller --max-num-seqs or "
          "--max-num-batched-tokens, a smaller model, or --device cpu",
          plan_.options.device.name, *free_bytes, layout.status().message());
    }
    plan_.layout = std::move(layout).value();
  }
  plan_.options.kv_cache_bytes = plan_.cache.cache_bytes;
  return ok_status();
}

LoadedModel::~LoadedModel() { device::clear_fault_hook(this); }

// The context is dead and the process about to exit: requests end with an error, and what the host knows is saved.
void LoadedModel::on_device_fault(uint64_t step) {
  const std::string why = core_->fault_summary(step);
  log::error("{}", why);
  const std::string path = fault_record_path();
  const Status saved = core_->save_fault_record(path, plan_.options, step);
  core_->finish_all(FinishReason::kError, why);  // last: a request that ends takes its row out of the tables
  if (saved.ok()) log::error("saved to {}: blockzero replay {} names op, layer, group and row", path, path);
  if (!saved.ok()) log::error("{}", saved.message());
  std::this_thread::sleep_for(kFaultGrace);
}

Status LoadedModel::warm_up(const Progress& progress) {
  PhaseClock clock;
  BZ_TRY(core_->warm_up(kFirstGraphRows));
  const auto sizes = static_cast<int64_t>(decode_capture_sizes(plan_.options.max_num_seqs).size());
  const int64_t captured = runner_->stats().captures;
  const bool none = runner_->config().mode == GraphMode::kNone;
  if (progress) {
    progress(fmt::format("graphs {}: {} decode sizes recorded and run once in {:.3f} s, {} left for later",
                         graph_mode_name(runner_->config().mode), captured, clock.lap(), none ? 0 : sizes - captured));
  }
  return ok_status();
}

EngineInfo LoadedModel::info() const {
  return {plan_.name, plan_.max_model_len, plan_.config.vocab_size, plan_.options.max_num_seqs,
          core_->scheduler().max_request_tokens()};
}

}  // namespace bz::engine
