// LoadedModel: a model file made ready to run: file, tokenizer, device, ops, model, cache layout, runner and core, in
// one owner that keeps them alive in the right order. What `run`, `serve`, `bench` and the tests start from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "device/registry.h"
#include "engine/engine_core.h"
#include "formats/gguf.h"
#include "formats/tokenizer.h"
#include "kv/layout.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/weight_store.h"

namespace bz::engine {

struct LoadOptions {
  std::string model_path;
  bool random_weights = false;    // model_path is a config.json; weights are random (models/random_weights.h)
  std::string served_model_name;  // empty: the file's general.basename, else its stem
  device::DeviceOptions device;
  GraphMode graphs = GraphMode::kAuto;
  device::NullGuard null_guard = device::NullGuard::kReadOnly;
  std::optional<DType> kv_dtype;       // none: f16 on the CPU, bf16 on CUDA
  int64_t kv_cache_bytes = 0;          // 0: of what the device has free (cache_size.h), else kDefaultCacheBytes
  int32_t block_size = 0;              // 0: chosen
  int32_t max_num_seqs = 0;            // 0: 32
  int32_t max_num_batched_tokens = 0;  // 0: 512, or max_num_seqs where that is more
  int32_t max_model_len = 0;           // 0: the model's context
  int32_t num_draft_tokens = 0;        // most tokens that n-gram speculation drafts for a request and step; 0: none
  const ops::OpTable* ops = nullptr;   // instead of the device's own: another drafter, in tests
  bool prefix_caching = true;
  bool kv_sanitize = false;
  bool batch_invariant = false;  // PAD-9b; the CPU has it anyway
  bool record_faults = true;     // a fault of the device saves a record (engine/flight_recorder.h)
};

// Where the device does not say what it has free: CPU, null device, and plan, which has none.
inline constexpr int64_t kDefaultCacheBytes = int64_t{512} << 20;
inline constexpr int32_t kFirstGraphRows = 64;

// The file's metadata checked and the cache planned, nothing allocated: what `plan` prints.
struct ModelPlan {
  std::unique_ptr<formats::GgufFile> file;
  models::ModelConfig config;
  kv::LayoutRequest cache;  // what the layout is made of
  kv::Layout layout;
  std::string name;
  int32_t max_model_len = 0;
  LoadOptions options;  // with every default filled in; kv_cache_bytes, where it was not given, once there is a device
};
Result<ModelPlan> plan_model(const LoadOptions& options);

class LoadedModel {
 public:
  // Called once a phase of starting up is done.
  using Progress = std::function<void(const std::string& line)>;
  static Result<std::unique_ptr<LoadedModel>> load(const LoadOptions& options, const Progress& progress = {});
  // Records the decode graphs of up to kFirstGraphRows rows; the engine's thread records the larger ones while it
  // serves.
  Status warm_up(const Progress& progress = {});

  ~LoadedModel();

  EngineCore& core() { return *core_; }
  GraphRunner& runner() { return *runner_; }
  device::Device& device() { return *device_; }
  const formats::Tokenizer& tokenizer() const { return *tokenizer_; }
  const formats::GgufFile& file() const { return *plan_.file; }
  const models::Model& model() const { return *model_; }
  const ModelPlan& plan() const { return plan_; }
  EngineInfo info() const;
  // Of the op table in use: "avx512-vnni".
  std::string isa() const { return std::string(ops_->isa); }

 private:
  explicit LoadedModel(ModelPlan plan) : plan_(std::move(plan)) {}
  Status start(const Progress& progress);
  Status size_cache(const kv::CacheConfig& config);
  void on_device_fault(uint64_t step);

  ModelPlan plan_;
  std::unique_ptr<formats::Tokenizer> tokenizer_;
  std::unique_ptr<device::Device> device_;
  const ops::OpTable* ops_ = nullptr;
  std::unique_ptr<models::WeightStore> weights_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<GraphRunner> runner_;
  std::unique_ptr<EngineCore> core_;
};

}  // namespace bz::engine
