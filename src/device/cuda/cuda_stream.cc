#include "device/cuda/cuda_stream.h"

#include <cstdlib>
#include <vector>

#include "base/check.h"

namespace bz::device::cuda {
namespace {

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
  const char* sync = std::getenv("BLOCKZERO_CUDA_SYNC");
  sync_each_op_ = sync != nullptr && *sync == '1';
}

CudaStream::~CudaStream() { cudaStreamDestroy(stream_); }

void CudaStream::begin_capture() {
  BZ_CHECK_MSG(!capturing_, "a capture is already on");
  use_device();
  BZ_CUDA_CHECK_AT(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), site("capture"));
  capturing_ = true;
}

std::unique_ptr<Graph> CudaStream::end_capture() {
  BZ_CHECK(capturing_);
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  BZ_CUDA_CHECK_AT(cudaStreamEndCapture(stream_, &graph), site("capture"));
  size_t num_nodes = 0;
  BZ_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  check_kernel_nodes_only(graph, num_nodes);
  cudaGraphExec_t exec = nullptr;
  BZ_CUDA_CHECK_AT(cudaGraphInstantiate(&exec, graph, 0), site("capture"));
  BZ_CUDA_CHECK(cudaGraphUpload(exec, stream_));
  BZ_CUDA_CHECK(cudaGraphDestroy(graph));
  return std::make_unique<CudaGraph>(exec, num_nodes);
}

void CudaStream::launch(const Graph& graph) {
  BZ_CHECK_MSG(!capturing_, "a graph cannot be launched inside a capture");
  use_device();
  BZ_CUDA_CHECK_AT(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).exec(), stream_), site("graph"));
}

void CudaStream::synchronize() { BZ_CUDA_CHECK_AT(cudaStreamSynchronize(stream_), site("some op of this step")); }

void CudaStream::op_enqueued(const char* op) {
  if (!sync_each_op_ || capturing_) return;
  BZ_CUDA_CHECK_AT(cudaStreamSynchronize(stream_), site(op));
}

}  // namespace bz::device::cuda
