#include "device/cuda/cuda_stream.h"

#include <chrono>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "device/cuda/cuda_check.h"

namespace bz::device::cuda {
namespace {

constexpr const char* kCaptureWayOut = "use --graphs none, a smaller --max-num-seqs or a smaller --kv-cache-bytes";

// A memcpy or memset node would cost microseconds a replay, and its source address would be frozen.
void check_kernel_nodes_only(cudaGraph_t graph, size_t num_nodes) {
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  BZ_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    BZ_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    BZ_CHECK_MSG(type == cudaGraphNodeTypeKernel, "a captured node of type {} is not a kernel", static_cast<int>(type));
  }
}

}  // namespace

CudaGraph::~CudaGraph() { cudaGraphExecDestroy(exec_); }

CudaStream::CudaStream(int device_index) : device_index_(device_index) {
  use_device();
  BZ_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : ends_) BZ_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    BZ_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device_index_));
    return value;
  };
  limits_ = {attribute(cudaDevAttrMultiProcessorCount), attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
             attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
  has_clusters_ = attribute(cudaDevAttrComputeCapabilityMajor) >= 9 && limits_.cta_shared_bytes >= kLargeSharedBytes;
  const char* sync = std::getenv("BLOCKZERO_CUDA_SYNC");
  sync_each_op_ = sync != nullptr && *sync == '1';
}

CudaStream::~CudaStream() {
  for (cudaEvent_t event : begins_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (cudaEvent_t event : ends_) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

void CudaStream::begin_capture() {
  BZ_CHECK_MSG(!capturing_, "a capture is already on");
  use_device();
  BZ_CUDA_CHECK_AT(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), site("capture"));
  capturing_ = true;
}

Result<std::unique_ptr<Graph>> CudaStream::end_capture() {
  BZ_CHECK(capturing_);
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  BZ_TRY(cuda_status(cudaStreamEndCapture(stream_, &graph), "a graph cannot be captured", kCaptureWayOut));
  size_t num_nodes = 0;
  BZ_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  check_kernel_nodes_only(graph, num_nodes);
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  BZ_CUDA_CHECK(cudaGraphDestroy(graph));
  BZ_TRY(cuda_status(error, "a captured graph cannot be made ready", kCaptureWayOut));
  auto made = std::make_unique<CudaGraph>(exec, num_nodes);
  BZ_TRY(cuda_status(cudaGraphUpload(exec, stream_), "a captured graph cannot be put on the device", kCaptureWayOut));
  return std::unique_ptr<Graph>(std::move(made));
}

void CudaStream::launch(const Graph& graph) {
  BZ_CHECK_MSG(!capturing_, "a graph cannot be launched inside a capture");
  use_device();
  BZ_CUDA_CHECK_AT(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).exec(), stream_), site("graph"));
}

void CudaStream::synchronize() { BZ_CUDA_CHECK_AT(cudaStreamSynchronize(stream_), site("some op of this step")); }

void CudaStream::begin_step(uint64_t step) {
  use_device();
  step_ = step;
  if (measuring_) BZ_CUDA_CHECK_AT(cudaEventRecord(begins_[step % kMaxOpenSteps], stream_), site("begin of the step"));
}

void CudaStream::end_step(uint64_t step) {
  BZ_CUDA_CHECK_AT(cudaEventRecord(ends_[step % kMaxOpenSteps], stream_), site("end of the step"));
}

void CudaStream::wait_step(uint64_t step) {
  const auto event_of = [step](cudaEvent_t(&events)[kMaxOpenSteps], uint64_t back) {
    return events[(step - back) % kMaxOpenSteps];
  };
  const auto start = std::chrono::steady_clock::now();
  BZ_CUDA_CHECK_AT(cudaEventSynchronize(event_of(ends_, 0)), (FaultSite{step, "some op of this step", -1}));
  times_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!measuring_ || step < first_measured_) return;
  float busy_ms = 0, idle_ms = 0;
  BZ_CUDA_CHECK(cudaEventElapsedTime(&busy_ms, event_of(begins_, 0), event_of(ends_, 0)));
  if (step > first_measured_) {
    BZ_CUDA_CHECK(cudaEventElapsedTime(&idle_ms, event_of(ends_, 1), event_of(begins_, 0)));
  }
  ++times_.steps;
  times_.busy_seconds += busy_ms * 1e-3;
  times_.idle_seconds += idle_ms * 1e-3;
}

void CudaStream::measure_steps() {
  synchronize();
  for (cudaEvent_t& event : ends_) BZ_CUDA_CHECK(cudaEventDestroy(event));
  for (auto* events : {&begins_, &ends_}) {
    for (cudaEvent_t& event : *events) BZ_CUDA_CHECK(cudaEventCreate(&event));
  }
  measuring_ = true;
  first_measured_ = step_ + 1;
  times_ = {.wait_seconds = times_.wait_seconds};
}

void CudaStream::op_enqueued(const char* op) {
  if (!sync_each_op_ || capturing_) return;
  BZ_CUDA_CHECK_AT(cudaStreamSynchronize(stream_), site(op));
}

}  // namespace bz::device::cuda
