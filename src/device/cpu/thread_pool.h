// ThreadPool: a fixed number of threads that run a row of ops together, one op after the other. The caller is worker 0.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "device/cpu/worker.h"

namespace bz::device::cpu {

class ThreadPool {
 public:
  // Throws std::system_error where the system has no room for so many threads.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return team_.size; }

  // Runs fn(i, worker) for i = 0 .. num_ops - 1, each on every worker that comes in time, and returns when all is done.
  // What op i wrote is visible in op i + 1. One caller at a time. Allocates nothing.
  template <class Fn>
  void run(size_t num_ops, Fn&& fn) {
    op_ = [](void* context, size_t i, Worker& w) { (*static_cast<std::remove_reference_t<Fn>*>(context))(i, w); };
    context_ = std::addressof(fn);
    for (size_t i = 0; i < num_ops; ++i) run_op(i);
  }

 private:
  using Op = void (*)(void* context, size_t i, Worker& worker);
  void run_op(size_t i);
  void open_op();
  void close_op();
  bool join_op(uint64_t number);
  void leave_op();
  void thread_main(int index);
  void end_threads();

  Team team_;
  Worker caller_;
  // Read by workers that have joined an op; changed when nobody is in one.
  Op op_ = nullptr;
  void* context_ = nullptr;
  size_t op_index_ = 0;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Cores this process may use.
int default_num_threads();

}  // namespace bz::device::cpu
