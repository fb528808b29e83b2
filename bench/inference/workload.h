// Workload: one thing an inference engine is asked to do, timed through EngineCore, and the least it must read and
// compute, so that a time can be turned into a share of the machine's limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"

namespace bz::bench {

// What a model reads and computes, from its file.
struct ModelWork {
  int64_t weight_bytes = 0;    // read once a step
  int64_t kv_token_bytes = 0;  // of one token's K and V, all layers
  double layer_ops = 0;        // of one token through all layers, attention over the cache not counted
  double logits_ops = 0;       // of one row of logits
  double attention_ops = 0;    // of one token over one position of the cache, all layers
};
ModelWork model_work(const engine::LoadedModel& model);

struct Measurement {
  double tokens = 0;  // the ones that the workload's rate counts
  double seconds = 0;
  int32_t steps = 0;  // counted ones
  double bytes = 0;   // least bytes read from memory meanwhile: weights once a step, the cache of each row
  double ops = 0;     // multiplies and adds
};

// Told of every step, so that a profile holds the steps that a measurement counts and no others.
class StepProbe {
 public:
  virtual ~StepProbe() = default;
  virtual void begin_step() = 0;
  virtual void end_step(bool counted) = 0;
};

// What a workload runs on. probe may be null.
struct Bench {
  engine::EngineCore& core;
  const ModelWork& work;
  StepProbe* probe = nullptr;
};

// The definitions are llama-bench's and llama-batched-bench's, so that both engines do the same work.
//   decode_alone   tokens one after another from an empty cache: tg128
//   prefill        a prompt until its first token: pp512
//   decode_batch   `rows` requests with prompts of `prompt` tokens; the steps in which all of them decode
//   first_token    a short prompt until its first token, model loaded
Measurement decode_alone(const Bench& bench, int32_t tokens);
Measurement prefill(const Bench& bench, int32_t prompt);
Measurement decode_batch(const Bench& bench, int32_t rows, int32_t prompt, int32_t tokens);
Measurement first_token(const Bench& bench, int32_t prompt);

// One of the above with its sizes, under the name that results are filed by.
struct Workload {
  std::string name;  // "tg128", "pp512", "tg64_d4096", "batch8", "batch32", "first8"
  std::function<Measurement(const Bench&)> run;
};
std::vector<Workload> all_workloads();

// The largest step that any of them takes.
inline constexpr int32_t kMaxRows = 32;
inline constexpr int32_t kMaxBatchedTokens = 512;
inline constexpr int32_t kMaxModelLen = 4352;

}  // namespace bz::bench
