#include "ops/cuda/products.h"

#include <vector>

#include "base/check.h"
#include "base/log.h"

namespace bz::ops::cuda {
namespace {

constexpr int kMaxCandidates = 8;
constexpr uint32_t kAlignment = 16;  // of every operand, and of every row of them

bool holds_kernels_alone(cudaGraph_t graph) {
  size_t num_nodes = 0;
  BZ_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  BZ_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    BZ_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) return false;
  }
  return num_nodes > 0;
}

Products* create(const CublasLt* lt, int device_index) {
  if (lt == nullptr) return nullptr;
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = lt->create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    cudaGetLastError();
    log::warn("cuBLASLt cannot start ({}): prompts and batches run on our own, slower kernels",
              lt->status_string(status));
    return nullptr;
  }
  return new Products(*lt, handle, device_index);  // to the end of the process: the CUDA runtime ends before statics do
}

}  // namespace

Products* Products::of(const device::cuda::CudaStream& stream) {
  stream.use_device();
  int device_index = 0;
  BZ_CUDA_CHECK(cudaGetDevice(&device_index));
  static Products* const products = create(cublas_lt(), device_index);
  if (products != nullptr) BZ_CHECK_EQ(products->device_index_, device_index);
  return products;
}

Products::Products(const CublasLt& lt, cublasLtHandle_t handle, int device_index)
    : lt_(lt), handle_(handle), device_index_(device_index) {
  BZ_CUDA_CHECK(cudaStreamCreateWithFlags(&trial_, cudaStreamNonBlocking));
  check_made(lt_, lt_.create_desc(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T, as_it_is = CUBLAS_OP_N;
  check_made(lt_, lt_.set_desc(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  check_made(lt_, lt_.set_desc(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &as_it_is, sizeof(as_it_is)));
  check_made(lt_, lt_.create_preference(&preference_));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_made(lt_, lt_.set_preference(preference_, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kProductWorkspaceBytes});
  // Parts of K may be summed by a kernel of their own, in order; not in place, with counters that a memset clears.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
}

size_t Products::num_shapes() const {
  const std::lock_guard lock(mutex_);
  return plans_.size();
}

bool Products::can(device::cuda::CudaStream& stream, const ProductShape& shape, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  const auto known = plans_.find(shape);
  if (known != plans_.end()) return known->second.has_value();
  const std::optional<Plan>& plan = plans_[shape] = choose(stream, shape, operands);
  if (!plan.has_value() && !said_) {
    said_ = true;
    log::info("cuBLASLt has no algorithm for {} x {} x {}: such products run on our own, slower kernel (said once)",
              shape.m, shape.n, shape.k);
  }
  return plan.has_value();
}

// The library counts columns first: our rows are its columns.
std::optional<Products::Plan> Products::choose(const device::cuda::CudaStream& stream, const ProductShape& shape,
                                               const ProductOperands& operands) const {
  const auto m = static_cast<uint64_t>(shape.m), n = static_cast<uint64_t>(shape.n), k = static_cast<uint64_t>(shape.k);
  Plan plan{make_layout(lt_, CUDA_R_16BF, k, m, shape.k),
            make_layout(lt_, CUDA_R_16BF, k, n, shape.k),
            make_layout(lt_, CUDA_R_32F, m, n, shape.out_stride),
            {}};
  cublasLtMatmulHeuristicResult_t candidates[kMaxCandidates];
  int found = 0;
  const cublasStatus_t status = lt_.choose(handle_, desc_, plan.a.get(), plan.b.get(), plan.out.get(), plan.out.get(),
                                           preference_, kMaxCandidates, candidates, &found);
  if (status != CUBLAS_STATUS_SUCCESS) found = 0;
  for (int i = 0; i < found; ++i) {
    plan.algorithm = candidates[i].algo;
    if (candidates[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (runs(plan, operands, stream) && is_kernels_alone(plan, operands)) return plan;
    cudaGetLastError();  // a refused candidate leaves no error behind
  }
  return std::nullopt;
}

// Behind what is enqueued there, so that nobody uses the operands meanwhile.
bool Products::runs(const Plan& plan, const ProductOperands& operands, const device::cuda::CudaStream& stream) const {
  cudaStreamCaptureStatus capturing{};
  BZ_CUDA_CHECK(cudaStreamIsCapturing(stream.handle(), &capturing));
  if (capturing != cudaStreamCaptureStatusNone) return true;
  return multiply(plan, operands, stream.handle()) == CUBLAS_STATUS_SUCCESS;
}

bool Products::is_kernels_alone(const Plan& plan, const ProductOperands& operands) const {
  BZ_CUDA_CHECK(cudaStreamBeginCapture(trial_, cudaStreamCaptureModeRelaxed));
  const cublasStatus_t status = multiply(plan, operands, trial_);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(trial_, &graph);
  const bool good = status == CUBLAS_STATUS_SUCCESS && ended == cudaSuccess && holds_kernels_alone(graph);
  if (graph != nullptr) BZ_CUDA_CHECK(cudaGraphDestroy(graph));
  return good;
}

cublasStatus_t Products::multiply(const Plan& plan, const ProductOperands& operands, cudaStream_t stream) const {
  const float one = 1, zero = 0;  // out is written, not read
  return lt_.matmul(handle_, desc_, &one, operands.a, plan.a.get(), operands.b, plan.b.get(), &zero, operands.out,
                    plan.out.get(), operands.out, plan.out.get(), &plan.algorithm, operands.workspace,
                    kProductWorkspaceBytes, stream);
}

void Products::enqueue(device::cuda::CudaStream& stream, const char* op, const ProductShape& shape,
                       const ProductOperands& operands) {
  const Plan* plan = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto known = plans_.find(shape);
    BZ_CHECK(known != plans_.end() && known->second.has_value());
    plan = &*known->second;  // a map moves nothing
  }
  const cublasStatus_t status = multiply(*plan, operands, stream.handle());
  if (status != CUBLAS_STATUS_SUCCESS) {
    const cudaError_t earlier = cudaStreamQuery(stream.handle());  // a kernel before it may have faulted
    if (earlier != cudaErrorNotReady) BZ_CUDA_CHECK_AT(earlier, stream.site(op));
    BZ_CHECK_MSG(false, "{}: cuBLASLt: {}; BLOCKZERO_CUBLASLT=none goes without it", op, lt_.status_string(status));
  }
  stream.op_enqueued(op);
}

}  // namespace bz::ops::cuda
