#include "engine/threaded_engine.h"

#include <chrono>
#include <utility>

namespace bz::engine {
namespace {

constexpr std::chrono::milliseconds kStatsTimeout{2000};

}  // namespace

ThreadedEngine::ThreadedEngine(EngineCore& core, EngineInfo info)
    : core_(core), info_(std::move(info)), stats_(core.stats()) {
  core_.use_pipeline();
  thread_ = std::thread([this] { thread_main(); });
}

ThreadedEngine::~ThreadedEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<RequestId> ThreadedEngine::submit(Request request, std::shared_ptr<Sink> sink) {
  BZ_TRY(core_.check(request));  // reads configuration only: safe beside a step
  const std::lock_guard lock(mutex_);
  if (!alive_) return Status(StatusCode::kUnavailable, "the engine has stopped: " + stats_.failure);
  const RequestId id(next_id_);
  next_id_ += static_cast<uint64_t>(request.num_choices);
  submissions_.push_back({id, std::move(request), std::move(sink)});
  wake_.notify_one();
  return id;
}

void ThreadedEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(id);
  wake_.notify_one();
}

EngineStats ThreadedEngine::stats() const {
  std::unique_lock lock(mutex_);
  const uint64_t version = stats_version_;
  stats_wanted_ = true;
  wake_.notify_one();
  stats_ready_.wait_for(lock, kStatsTimeout, [&] { return stats_version_ != version; });
  return stats_;
}

void ThreadedEngine::drain_inbox(std::unique_lock<std::mutex>& lock) {
  std::vector<Submission> submissions;
  std::vector<RequestId> cancels;
  submissions.swap(submissions_);
  cancels.swap(cancels_);
  lock.unlock();  // sinks run without the lock
  for (Submission& s : submissions) core_.add(s.id, std::move(s.request), std::move(s.sink));
  for (const RequestId id : cancels) core_.cancel(id);
  lock.lock();
}

void ThreadedEngine::thread_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] {
      return stop_ || stats_wanted_ || !submissions_.empty() || !cancels_.empty() || core_.has_captures() ||
             core_.has_work();
    });
    if (stop_) break;
    if (!submissions_.empty() || !cancels_.empty()) drain_inbox(lock);
    if (stats_wanted_) {
      stats_ = core_.stats();
      ++stats_version_;
      stats_wanted_ = false;
      stats_ready_.notify_all();
    }
    lock.unlock();
    core_.step();
    core_.capture_one();  // beside the step that has just been enqueued
    lock.lock();
    if (alive_ && !core_.alive()) {
      alive_ = false;  // submit() refuses from here on
      stats_ = core_.stats();
      drain_inbox(lock);
      lock.unlock();
      core_.finish_all(FinishReason::kError, core_.stats().failure);  // what came in while the step failed
      lock.lock();
    }
  }
  drain_inbox(lock);
  lock.unlock();
  core_.finish_all(FinishReason::kCancelled);
}

}  // namespace bz::engine
