// Worker: one thread for what would hold up the IO thread, such as tokenising a long prompt.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace bz::server {

class Worker {
 public:
  explicit Worker(size_t max_tasks);
  // Waits for the running task; those still queued are dropped.
  ~Worker();

  // False: full. Tasks run in order and must not throw.
  [[nodiscard]] bool submit(std::function<void()> task);

 private:
  void run();

  const size_t max_tasks_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace bz::server
