// The CUDA stream and graph. A graph holds kernel nodes alone: no memcpy and no memset node, checked after each capture
// (a step's input arrives through host-mapped memory that prepare reads).
//
// BLOCKZERO_CUDA_SYNC=1: every eager op is waited for, so that a fault names its op and layer.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_fault.h"
#include "device/cuda/gpu_limits.h"
#include "device/stream.h"

namespace bz::device::cuda {

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraphExec_t exec, size_t num_nodes) : exec_(exec), num_nodes_(num_nodes) {}
  ~CudaGraph() override;
  size_t num_nodes() const override { return num_nodes_; }
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
  size_t num_nodes_;
};

inline constexpr int kLargeSharedBytes = 227 * 1024;

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device_index);
  ~CudaStream() override;

  void begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;
  void launch(const Graph& graph) override;
  void synchronize() override;
  void set_layer(int32_t layer) override { layer_ = layer; }
  void begin_step(uint64_t step) override;
  void end_step(uint64_t step) override;
  void wait_step(uint64_t step) override;
  void measure_steps() override;
  StepTimes step_times() const override { return times_; }

  cudaStream_t handle() const { return stream_; }
  // Clusters, copies into shared memory that run by themselves, kernels that start while the one before them finishes,
  // and 227 KiB of shared memory for a cta: sm_90 and sm_100. Others, sm_120 with its 99 KiB too, take plain paths.
  bool has_clusters() const { return has_clusters_; }
  const GpuLimits& limits() const { return limits_; }
  // Makes this stream's device the calling thread's.
  void use_device() const { BZ_CUDA_CHECK(cudaSetDevice(device_index_)); }
  FaultSite site(const char* op) const { return {step_, op, layer_}; }
  // After an op's kernels: waits for them when that is asked for.
  void op_enqueued(const char* op);

 private:
  int device_index_;
  cudaStream_t stream_ = nullptr;
  bool has_clusters_ = false;
  GpuLimits limits_;
  bool capturing_ = false;
  bool sync_each_op_ = false;
  int32_t layer_ = -1;
  uint64_t step_ = 0;
  bool measuring_ = false;
  uint64_t first_measured_ = 0;
  StepTimes times_;
  cudaEvent_t begins_[kMaxOpenSteps] = {};  // by step, modulo; recorded while measuring
  cudaEvent_t ends_[kMaxOpenSteps] = {};
};

}  // namespace bz::device::cuda
