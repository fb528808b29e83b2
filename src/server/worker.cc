#include "server/worker.h"

#include "server/http.h"

namespace bz::server {

Worker::Worker(size_t max_bytes) : max_bytes_(max_bytes), thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Worker::submit(size_t bytes, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    const size_t most = bytes > kSmallBodyBytes ? max_bytes_ : 2 * max_bytes_;
    if (waiting_bytes_ + bytes > most) return false;
    waiting_bytes_ += bytes;
    tasks_.emplace(bytes, std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Worker::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      auto next = tasks_.extract(tasks_.begin());
      waiting_bytes_ -= next.key();
      task = std::move(next.mapped());
    }
    task();
  }
}

}  // namespace bz::server
