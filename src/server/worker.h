// Worker: one thread for what would hold up the IO thread, such as tokenising a long prompt. Of the texts that wait the
// shortest is next, so that a long one holds up a shorter one for no more than one turn.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace bz::server {

class Worker {
 public:
  // Long texts may take max_bytes of memory while they wait; short ones (kSmallBodyBytes) find as much again.
  explicit Worker(size_t max_bytes);
  // Waits for the running task; those still queued are dropped.
  ~Worker();

  // False: full. `bytes`: of the task's text. Tasks must not throw.
  [[nodiscard]] bool submit(size_t bytes, std::function<void()> task);

 private:
  void run();

  const size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<size_t, std::function<void()>> tasks_;  // by bytes, then in order of arrival
  size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace bz::server
