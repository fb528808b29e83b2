// B0 for a GPU: the limits that every other ratio of the run divides by. Prints one JSON object.
//
// Memory: copy, read and write of 4 GiB, reading 24 MiB of the L2. Kernels: one node of a chain in a graph, plain and
// with programmatic dependent launch (PDL), with small and large parameters; what launching a graph costs the host.
// What a step avoids: a memset node, a node that copies from pinned host memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

namespace {

#define OK(call)                                                                                        \
  do {                                                                                                  \
    const cudaError_t e = (call);                                                                       \
    if (e != cudaSuccess) std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)), std::exit(1); \
  } while (0)

__global__ void copy_kernel(const float4* from, float4* to, size_t n) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += stride) to[i] = from[i];
}
__global__ void write_kernel(float4* to, size_t n, float v) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += stride) to[i] = {v, v, v, v};
}
// Four independent loads in flight a thread.
__global__ void read_kernel(const float4* from, float* out, size_t n) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  float s[4] = {};
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (; i + 3 * stride < n; i += 4 * stride) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = __ldcs(from + i + k * stride);
#pragma unroll
    for (int k = 0; k < 4; ++k) s[k] += v[k].x + v[k].y + v[k].z + v[k].w;
  }
  for (; i < n; i += stride) s[0] += from[i].x;
  if (s[0] + s[1] + s[2] + s[3] == 12345.678f) *out = 1;
}

// The same n quads `times` times, each warp other ones than before: from the L2, not from L1.
__global__ void read_again_kernel(const float4* from, float* out, size_t n, int times) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  float s = 0;
  for (int t = 0; t < times; ++t) {
    const size_t shift = static_cast<size_t>(t) * 7919 * blockDim.x % n;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n; i += stride) {
      const size_t j = i + shift;
      const float4 v = __ldcg(from + (j < n ? j : j - n));
      s += v.x + v.y + v.z + v.w;
    }
  }
  if (s == 12345.678f) *out = 1;
}

struct Large {
  int words[384];
};
__global__ void empty_kernel(int) {}
__global__ void empty_pdl_kernel(int) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__global__ void empty_large_kernel(const __grid_constant__ Large) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The least a dependent kernel does: reads one value that the one before it wrote, and writes one.
__global__ void dependent_kernel(float* p) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x == 0) p[blockIdx.x] = p[(blockIdx.x + 1) % gridDim.x] + 1.0f;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

cudaStream_t stream;

template <class Fn>
double time_us(Fn&& fn, int repeats) {
  cudaEvent_t a, b;
  OK(cudaEventCreate(&a));
  OK(cudaEventCreate(&b));
  std::vector<double> t;
  for (int i = 0; i < repeats + 2; ++i) {
    OK(cudaEventRecord(a, stream));
    fn();
    OK(cudaEventRecord(b, stream));
    OK(cudaEventSynchronize(b));
    float ms = 0;
    OK(cudaEventElapsedTime(&ms, a, b));
    if (i >= 2) t.push_back(ms * 1e3);
  }
  return median(t);
}

template <class... A>
void launch(void (*kernel)(A...), int grid, int cta, bool pdl, A... args) {
  cudaLaunchConfig_t c{};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  c.gridDim = grid, c.blockDim = cta, c.stream = stream, c.attrs = &attribute, c.numAttrs = pdl ? 1 : 0;
  OK(cudaLaunchKernelEx(&c, kernel, args...));
}

template <class Fn>
cudaGraphExec_t capture(Fn&& fn) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  fn();
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  return exec;
}

// Microseconds of one node of a chain: (300 nodes - 100 nodes) / 200.
template <class Fn>
double node_us(Fn&& enqueue) {
  double t[2];
  for (int i = 0; i < 2; ++i) {
    const int n = i == 0 ? 100 : 300;
    const cudaGraphExec_t exec = capture([&] {
      for (int k = 0; k < n; ++k) enqueue();
    });
    t[i] = time_us([&] { OK(cudaGraphLaunch(exec, stream)); }, 15);
    OK(cudaGraphExecDestroy(exec));
  }
  return (t[1] - t[0]) / 200;
}

}  // namespace

int main() {
  cudaDeviceProp prop{};
  OK(cudaGetDeviceProperties(&prop, 0));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr size_t kBytes = size_t{4} << 30, kQuads = kBytes / 16;
  float4 *a, *b;
  float* p;
  OK(cudaMalloc(&a, kBytes));
  OK(cudaMalloc(&b, kBytes));
  OK(cudaMalloc(&p, 1 << 20));
  OK(cudaMemset(p, 0, 1 << 20));
  launch(write_kernel, 132 * 8, 512, false, a, kQuads, 1.5f);
  double read = 0;
  for (const int per_sm : {2, 4, 8, 16}) {
    for (const int cta : {256, 512}) {
      read = std::max(
          read,
          kBytes /
              time_us([&] { launch(read_kernel, 132 * per_sm, cta, false, static_cast<const float4*>(a), p, kQuads); },
                      7) /
              1e6);
    }
  }
  const double copy =
      2 * kBytes /
      time_us([&] { launch(copy_kernel, 132 * 16, 512, false, static_cast<const float4*>(a), b, kQuads); }, 7) / 1e6;
  const double write = kBytes / time_us([&] { launch(write_kernel, 132 * 16, 512, false, b, kQuads, 2.5f); }, 7) / 1e6;
  // The L2's 24 MiB, read 64 times by one kernel.
  constexpr size_t kL2Quads = (size_t{24} << 20) / 16;
  const double l2 =
      64.0 * kL2Quads * 16 /
      time_us([&] { launch(read_again_kernel, 132 * 4, 512, false, static_cast<const float4*>(a), p, kL2Quads, 64); },
              7) /
      1e6;
  const double plain = node_us([&] { launch(empty_kernel, 1, 32, false, 0); });
  const double wide = node_us([&] { launch(empty_kernel, 132, 128, false, 0); });
  const double pdl = node_us([&] { launch(empty_pdl_kernel, 132, 128, true, 0); });
  const double large = node_us([&] { launch(empty_large_kernel, 132, 128, true, Large{}); });
  const double dependent = node_us([&] { launch(dependent_kernel, 132, 128, false, p); });
  const double dependent_pdl = node_us([&] { launch(dependent_kernel, 132, 128, true, p); });
  // Between kernels, as they would stand in a step: what the pair costs beyond the kernel.
  void* host_bytes;
  OK(cudaMallocHost(&host_bytes, 64 << 10));
  const double memset_node = node_us([&] {
                               OK(cudaMemsetAsync(p, 0, 4, stream));
                               launch(empty_kernel, 132, 128, false, 0);
                             }) -
                             wide;
  const double h2d_node = node_us([&] {
                            OK(cudaMemcpyAsync(p, host_bytes, 64 << 10, cudaMemcpyHostToDevice, stream));
                            launch(empty_kernel, 132, 128, false, 0);
                          }) -
                          wide;
  const cudaGraphExec_t exec = capture([&] {
    for (int k = 0; k < 160; ++k) launch(empty_pdl_kernel, 132, 128, true, 0);
  });
  std::vector<double> host;
  for (int i = 0; i < 21; ++i) {
    OK(cudaStreamSynchronize(stream));
    const auto start = std::chrono::steady_clock::now();
    OK(cudaGraphLaunch(exec, stream));
    host.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6);
  }
  std::printf(
      "{\"bench\": \"B0\", \"gpu\": \"%s\", \"read_TBs\": %.3f, \"copy_TBs\": %.3f, \"write_TBs\": %.3f, "
      "\"l2_read_TBs\": %.3f, \"node_us\": "
      "%.3f, "
      "\"node_132_us\": %.3f, \"node_pdl_us\": %.3f, \"node_pdl_large_params_us\": %.3f, \"dependent_node_us\": %.3f, "
      "\"dependent_node_pdl_us\": %.3f, \"memset_node_us\": %.3f, \"h2d_64k_node_us\": %.3f, "
      "\"graph_launch_160_host_us\": %.2f}\n",
      prop.name, read, copy, write, l2, plain, wide, pdl, large, dependent, dependent_pdl, memset_node, h2d_node,
      median(host));
  return 0;
}
