// Engine: continuous batching over one model on one device.
//
// submit() and cancel() may be called by any thread; everything else happens on the engine's own thread, which runs
// schedule, stage, run and deliver as long as there is work. A request fails alone (ENG-1); the blocks of one that is
// cancelled are released within one step (ENG-2); steady steps allocate nothing (ENG-3).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"

namespace bz::engine {

// A snapshot for /metrics and /health.
struct EngineStats {
  int64_t requests_running = 0;
  int64_t requests_waiting = 0;
  int64_t requests_finished = 0;  // by any reason
  int64_t requests_failed = 0;
  int64_t requests_preempted = 0;
  int64_t requests_forked = 0;                   // choices that began as a copy of another one's prompt
  int64_t prompt_tokens = 0;                     // computed, not taken from the prefix cache
  int64_t generation_tokens = 0;                 // sampled
  int64_t prefix_query_tokens = 0;               // looked for in the prefix cache at admission
  int64_t prefix_hit_tokens = 0;                 // found
  std::map<std::string, int64_t> prefix_misses;  // why no more were found, per cache group
  // Speculation: rows that verified drafts, drafts verified, drafts accepted, and these by their place in the draft.
  int64_t spec_drafts = 0, spec_draft_tokens = 0, spec_accepted_tokens = 0;
  std::vector<int64_t> spec_accepted_by_place;  // empty: no speculation
  int64_t steps = 0;
  int64_t dummy_steps = 0;
  int64_t padded_rows = 0;          // rows of graphs run that named the null row
  int64_t steps_without_graph = 0;  // whose ops were enqueued one by one
  std::map<std::string, int64_t> steps_by_graph_key;
  int64_t blocks_total = 0;  // without the null block
  int64_t blocks_free = 0;
  int64_t kv_cache_bytes = 0;
  bool null_block_clean = true;  // from the bytes (PAD-8)
  bool alive = true;             // false once the engine has fail-stopped
  std::string failure;           // why
};

// What a front end needs to know of the model behind an engine.
struct EngineInfo {
  std::string model_name;
  int32_t max_model_len = 0;  // prompt and output together
  int32_t vocab_size = 0;
  int32_t max_num_seqs = 0;
  int32_t max_request_tokens = INT32_MAX;  // that the cache holds of one request, if less than max_model_len
};

// The interface front ends use; servers and tests may put another implementation behind it.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual const EngineInfo& info() const = 0;
  // Checks and queues a request. A bad one is refused here with the field's name in Status::param(); nothing of it
  // stays. sink->on_output is called until an Output with `finished` was delivered; it may run before submit returns. A
  // request of several choices answers under as many ids, from the returned one on.
  virtual Result<RequestId> submit(Request request, std::shared_ptr<Sink> sink) = 0;
  // The client left. Unknown or finished ids are ignored. An Output with kCancelled still comes, once.
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
};

}  // namespace bz::engine
