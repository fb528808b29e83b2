// ThreadPool: a fixed number of threads that run the same function together. The caller is worker 0.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "device/cpu/worker.h"

namespace bz::device::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return team_.size; }

  // Runs fn(worker) on every thread and returns when all have finished. One caller at a time. Allocates nothing.
  template <class Fn>
  void run(Fn&& fn) {
    run_erased([](void* context, Worker& worker) { (*static_cast<std::remove_reference_t<Fn>*>(context))(worker); },
               &fn);
  }

 private:
  using Job = void (*)(void* context, Worker& worker);
  void run_erased(Job job, void* context);
  void thread_main(int index);

  Team team_;
  Worker caller_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint32_t> epoch_{0};  // a new value starts a job
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Cores this process may use.
int default_num_threads();

}  // namespace bz::device::cpu
