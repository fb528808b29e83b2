// Matrix products of many tokens on both of their paths, in turn, inside graphs: our own kernel (matmul_mma.cuh) and
// cuBLASLt (split_linear.h). From where on the second is the faster is what heuristics.cc wants to know. Prints one
// JSON object a shape; a TFLOP counts 2 T N K, whatever a path makes of it.
//
//   cuda_products [tokens ...]        default: 64 128 256 512 2048 8192
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "cuda/op_bench.h"
#include "device/registry.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/split_linear.h"

namespace {

using namespace bz;
using bench::Bench;
namespace cuda = ops::cuda;

constexpr int kRounds = 5;
constexpr double kRoundSeconds = 4e-3;
constexpr int32_t kBlock = 128;

struct Model {
  const char* name;
  DType dtype, head_dtype;
  int32_t d, heads, kv_heads, head_dim, inter, vocab;
  int nodes;  // of a graph, each with weights of its own, so that they come from memory
};
constexpr Model kModels[] = {
    {"SmolLM2-135M", DType::kQ4_1, DType::kQ8_0, 576, 9, 3, 64, 1536, 49152, 30},
    {"Llama-8B", DType::kBF16, DType::kBF16, 4096, 32, 8, 128, 14336, 128256, 2},
};
constexpr int32_t kMaxHeadTokens = 512;  // more rows of logits than steps have

struct Layer {
  ops::Weight q, k, v, o, gate, up, down;
};

using Enqueue = std::function<void(int)>;

struct Arm {
  std::unique_ptr<device::Graph> graph;
  std::vector<double> us;  // of a node
};

double seconds_of(Bench& b, const device::Graph& graph, int launches) {
  b.stream->synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) b.stream->launch(graph);
  b.stream->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Microseconds of a node of each arm, medians of rounds in turn.
std::pair<double, double> compare(Bench& b, int nodes, const Enqueue& own, const Enqueue& library) {
  Arm arms[2];
  for (int a = 0; a < 2; ++a) {
    (a == 0 ? own : library)(0);  // what is chosen and loaded at a first use
    b.stream->begin_capture();
    for (int i = 0; i < nodes; ++i) (a == 0 ? own : library)(i);
    arms[a].graph = b.stream->end_capture().value();
  }
  for (int r = 0; r < kRounds; ++r) {
    for (Arm& arm : arms) {
      const double once = seconds_of(b, *arm.graph, 1);
      const int launches = std::max(1, static_cast<int>(kRoundSeconds / once));
      arm.us.push_back(seconds_of(b, *arm.graph, launches) * 1e6 / launches / nodes);
    }
  }
  for (Arm& arm : arms) std::sort(arm.us.begin(), arm.us.end());
  return {arms[0].us[kRounds / 2], arms[1].us[kRounds / 2]};
}

struct Products {
  Bench steps;  // memory of one number of tokens
  const Model& m;
  int32_t tokens;
  bool missing = false;  // the library has no algorithm for what it was asked last

  void report(const char* op, int64_t n, int64_t k, const Enqueue& own, const Enqueue& library) {
    library(0);
    if (std::exchange(missing, false)) {
      std::printf(
          "{\"bench\": \"products\", \"name\": \"%s %s, %s\", \"n\": %lld, \"k\": %lld, \"tokens\": %d, "
          "\"cublaslt_us\": null}\n",
          m.name, dtype_info(m.dtype).name.data(), op, static_cast<long long>(n), static_cast<long long>(k), tokens);
      return;
    }
    const auto [own_us, library_us] = compare(steps, m.nodes, own, library);
    const double tflop = 2e-12 * tokens * static_cast<double>(n * k);
    std::printf(
        "{\"bench\": \"products\", \"name\": \"%s %s, %s\", \"n\": %lld, \"k\": %lld, \"tokens\": %d, "
        "\"own_us\": %.2f, \"cublaslt_us\": %.2f, \"own_tflops\": %.1f, \"cublaslt_tflops\": %.1f, \"ratio\": %.2f}\n",
        m.name, dtype_info(m.dtype).name.data(), op, static_cast<long long>(n), static_cast<long long>(k), tokens,
        own_us, library_us, tflop / own_us * 1e6, tflop / library_us * 1e6, own_us / library_us);
    std::fflush(stdout);
  }

  // The library's path whatever heuristics.cc says.
  void split(DType dtype, const cuda::LinearParams& p, void* scratch) {
    if (cuda::run_split_linear(*steps.stream, "bench", dtype, p, scratch)) return;
    missing = true;
  }

  void run(const std::vector<Layer>& layers, const ops::Weight& head);
};

void Products::run(const std::vector<Layer>& layers, const ops::Weight& head) {
  const auto n = static_cast<size_t>(tokens);
  const int32_t q_dim = m.heads * m.head_dim, kv_dim = m.kv_heads * m.head_dim;
  const ops::ValidCount valid = steps.upload(std::vector<kv::NumValidTokens>(1, kv::NumValidTokens(tokens)));
  std::vector<kv::SlotId> slots;
  for (size_t t = 0; t < n; ++t) slots.push_back(kv::SlotId(kBlock + static_cast<int64_t>(t)));
  const int64_t entry = int64_t{kv_dim} * 2, page = entry * kBlock;
  const auto memory = steps.device.create_slabs({2 * page, tokens / kBlock + 2, device::NullGuard::kHard});
  ops::KvLayer cache;
  cache.base = (*memory)->base();
  cache.k = {2 * page, 0, entry, kBlock};
  cache.v = {2 * page, page, entry, kBlock};
  cache.num_kv_heads = m.kv_heads, cache.head_dim = m.head_dim, cache.dtype = DType::kBF16;
  const ops::TensorRef x = steps.random(tokens, m.d), q = steps.random(tokens, q_dim),
                       gate = steps.random(tokens, m.inter), cos_sin = steps.random(tokens, m.head_dim);
  const auto* norm = static_cast<const float*>(steps.random(1, m.d).data);
  const auto* there_slots = steps.upload(slots);
  void* scratch = steps.allocate(cuda::split_scratch_bytes(tokens, std::max(m.inter, q_dim)));
  const ops::OpTable& ops = steps.ops;
  device::Stream& s = *steps.stream;
  const auto layer = [&](int i) -> const Layer& { return layers[static_cast<size_t>(i)]; };

  const auto qkv = [&](int i) {
    const Layer& l = layer(i);
    return ops::NormQkvParams{x,           norm,  1e-5f, l.q,     l.k, l.v, q, cos_sin, ops::RopeStyle::kAdjacentPairs,
                              there_slots, cache, valid, nullptr, 0};
  };
  report(
      "norm_qkv", q_dim + 2 * kv_dim, m.d, [&](int i) { ops.norm_qkv(s, qkv(i)); },
      [&](int i) { split(m.dtype, cuda::linear_of(qkv(i)), scratch); });
  const auto gate_up = [&](int i) {
    return ops::NormGateUpParams{x, norm, 1e-5f, layer(i).gate, layer(i).up, gate, valid, nullptr, 0};
  };
  report(
      "norm_gate_up", 2 * m.inter, m.d, [&](int i) { ops.norm_gate_up(s, gate_up(i)); },
      [&](int i) { split(m.dtype, cuda::linear_of(gate_up(i)), scratch); });
  const auto product = [&](const char* name, const ops::TensorRef& in, const auto& weight_of, const ops::TensorRef& out,
                           int32_t accumulate) {
    const auto params = [&](int i) {
      return ops::MatmulParams{in, {{weight_of(i), out}}, 1, accumulate, nullptr, 0, valid};
    };
    report(
        name, out.cols, in.cols, [&](int i) { ops.matmul(s, params(i)); },
        [&](int i) { split(weight_of(i).dtype, cuda::linear_of(params(i), 0, 1), scratch); });
  };
  product("o", q, [&](int i) { return layer(i).o; }, x, 1);
  product("down", gate, [&](int i) { return layer(i).down; }, x, 1);
  if (tokens > kMaxHeadTokens) return;
  product("head", x, [&](int) { return head; }, steps.random(tokens, m.vocab), 0);
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e3;
}

// What the library costs a process: to find it, and its first use.
void report_first_use(Bench& b, double found_ms) {
  const cuda::CublasLt* lt = cuda::cublas_lt();
  if (lt == nullptr) std::fprintf(stderr, "cuda_products: no cuBLASLt here\n"), std::exit(1);
  const ops::Weight w = b.weight(DType::kBF16, 512, 512);
  const size_t bytes = cuda::split_scratch_bytes(2048, 512);
  void* scratch = b.allocate(bytes);
  size_t before = 0, after = 0, all = 0;
  cudaMemGetInfo(&before, &all);
  const auto start = std::chrono::steady_clock::now();
  b.ops.prepare_products(*b.stream, {ops::ProductsParams::Op::kMatmul, {w}, 1, 2048, scratch, bytes});
  const double ms = ms_since(start);
  cudaMemGetInfo(&after, &all);
  std::printf(
      "{\"bench\": \"products\", \"cublaslt\": %zu, \"found_ms\": %.1f, \"first_use_ms\": %.1f, "
      "\"first_use_device_mib\": %.1f}\n",
      lt->version(), found_ms, ms, (static_cast<double>(before) - static_cast<double>(after)) / (1 << 20));
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device::create_device({.name = "cuda:0"});
  if (!device.ok()) return std::fprintf(stderr, "%s\n", device.status().message().c_str()), 1;
  const auto start = std::chrono::steady_clock::now();
  const auto ops = ops::op_table_for(device::DeviceKind::kCuda);
  const double found_ms = ms_since(start);
  if (!ops.ok()) return std::fprintf(stderr, "%s\n", ops.status().message().c_str()), 2;
  std::vector<int32_t> sizes = {64, 128, 256, 512, 2048, 8192};
  if (argc > 1) sizes.clear();
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max(1, std::atoi(argv[i])));
  {
    Bench b{**device, **ops};
    report_first_use(b, found_ms);
  }
  for (const Model& m : kModels) {
    Bench b{**device, **ops};
    const int32_t q_dim = m.heads * m.head_dim, kv_dim = m.kv_heads * m.head_dim;
    std::vector<Layer> layers;
    for (int i = 0; i < m.nodes; ++i) {
      layers.push_back({b.weight(m.dtype, q_dim, m.d), b.weight(m.dtype, kv_dim, m.d), b.weight(m.dtype, kv_dim, m.d),
                        b.weight(m.dtype, m.d, q_dim), b.weight(m.dtype, m.inter, m.d), b.weight(m.dtype, m.inter, m.d),
                        b.weight(m.dtype, m.d, m.inter)});
    }
    const ops::Weight head = b.weight(m.head_dtype, m.vocab, m.d);
    for (const int32_t tokens : sizes) Products{{**device, **ops}, m, tokens}.run(layers, head);
  }
  return 0;
}
