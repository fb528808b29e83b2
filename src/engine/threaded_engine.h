// ThreadedEngine: an EngineCore on a thread of its own, behind the thread-safe EngineClient.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_core.h"

namespace bz::engine {

class ThreadedEngine final : public EngineClient {
 public:
  // The core is used by the engine's thread alone from here on and outlives this object.
  ThreadedEngine(EngineCore& core, EngineInfo info);
  // Cancels what runs and joins the thread.
  ~ThreadedEngine() override;

  const EngineInfo& info() const override { return info_; }
  Result<RequestId> submit(Request request, std::shared_ptr<Sink> sink) override;
  void cancel(RequestId id) override;
  // Asks the engine's thread for a snapshot; after kStatsTimeout the last one is returned.
  EngineStats stats() const override;

 private:
  struct Submission {
    RequestId id;
    Request request;
    std::shared_ptr<Sink> sink;
  };

  void thread_main();
  void drain_inbox(std::unique_lock<std::mutex>& lock);

  EngineCore& core_;
  EngineInfo info_;
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;         // the engine's thread
  mutable std::condition_variable stats_ready_;  // who waits for a snapshot
  std::vector<Submission> submissions_;
  std::vector<RequestId> cancels_;
  uint64_t next_id_ = 1;
  bool stop_ = false;
  bool alive_ = true;
  mutable bool stats_wanted_ = false;
  uint64_t stats_version_ = 0;
  EngineStats stats_;
  std::thread thread_;
};

}  // namespace bz::engine
