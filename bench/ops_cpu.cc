// CPU ops by themselves, at the shapes of SmolLM2-135M (Q4_1 matrices, Q8_0 head): each beside the limit measured in
// the same run. A share of 1.00 is the machine's read bandwidth, or its rate of 16-bit integer products.
//
//   ops_cpu [--threads N] [--rounds N] [--isa NAME] [--only matmul|attention]
//
// With one thread, times are CPU times of that thread, so that other programs on the machine hardly matter.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/half.h"
#include "calibration/compute.h"
#include "calibration/machine.h"
#include "calibration/memory.h"
#include "device/cpu/cpu_slabs.h"
#include "device/cpu/cpu_stream.h"
#include "ops/cpu/cpu_ops.h"

namespace bz::bench {
namespace {

using namespace bz::ops;  // NOLINT(google-build-using-namespace)

constexpr int32_t kHidden = 576, kHeads = 9, kKvHeads = 3, kHeadDim = 64, kInner = 1536, kVocab = 49152, kLayers = 30;
constexpr int32_t kBlockSize = 32;

struct Limits {
  double bytes_per_s = 0;
  double macs_per_s = 0;  // products of 16-bit integers with sums in 32
};

struct Setup {
  const OpTable* ops;
  device::cpu::ThreadPool* pool;
  int threads;
  int rounds;
  Limits limits;
};

double now(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Median seconds of fn().
template <class Fn>
double time_of(const Setup& s, Fn&& fn) {
  fn();
  std::vector<double> times;
  for (int i = 0; i < s.rounds; ++i) {
    const double start = now(s.threads);
    fn();
    times.push_back(now(s.threads) - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void report(const Setup& s, const std::string& what, double seconds, double bytes, double macs) {
  const double read = bytes / s.limits.bytes_per_s, compute = s.limits.macs_per_s > 0 ? macs / s.limits.macs_per_s : 0;
  fmt::print("{:<34} {:>9.3f} ms {:>8.1f} GB/s {:>8.1f} GMAC/s   {:.2f} of {}\n", what, seconds * 1e3,
             bytes / seconds / 1e9, macs / seconds / 1e9, std::max(read, compute) / seconds,
             read >= compute ? "read bandwidth" : "int16 rate");
}

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> v(n);
  for (float& x : v) x = uniform(rng);
  return v;
}

// ---- the matrix products of one step, over distinct weights as large as the model ----

class Weights {
 public:
  Weights() {
    for (int l = 0; l < kLayers; ++l) {
      for (const auto& [n, k] : {std::pair{kHidden, kHidden},
                                 {192, kHidden},
                                 {192, kHidden},
                                 {kHidden, kHidden},
                                 {kInner, kHidden},
                                 {kInner, kHidden},
                                 {kHidden, kInner}}) {
        add(DType::kQ4_1, n, k);
      }
    }
    add(DType::kQ8_0, kVocab, kHidden);
    bytes_.resize(total_);
    std::mt19937 rng(1);
    for (size_t i = 0; i + 4 <= total_; i += 4) {
      const auto word = static_cast<uint32_t>(rng()) & 0x23ff23ffu;  // whatever is read as a scale is a small number
      std::memcpy(bytes_.data() + i, &word, 4);
    }
    size_t at = 0;
    for (Weight& w : weights_) {
      w.data = bytes_.data() + at;
      at += static_cast<size_t>(row_bytes(w.dtype, w.k) * w.n);
    }
  }
  const Weight& layer(int l, int i) const { return weights_[static_cast<size_t>(l * 7 + i)]; }
  const Weight& head() const { return weights_.back(); }

 private:
  void add(DType dtype, int32_t n, int32_t k) {
    weights_.push_back({nullptr, dtype, n, k});
    total_ += static_cast<size_t>(row_bytes(dtype, k) * n);
  }
  std::vector<Weight> weights_;
  size_t total_ = 0;
  std::vector<std::byte> bytes_;
};

class MatmulPass {
 public:
  MatmulPass(const Setup& s, const Weights& weights, int32_t rows)
      : s_(s), weights_(weights), rows_(rows), valid_(rows), x_(random_floats(static_cast<size_t>(rows) * kInner, 3)) {
    scratch_.resize(s.ops->matmul_scratch_bytes(rows, kInner));
    out_.resize(static_cast<size_t>(rows) * std::max(2 * kInner, kVocab));
  }
  // Returns bytes of weights and products.
  std::pair<double, double> layers() {
    double bytes = 0, macs = 0;
    for (int l = 0; l < kLayers; ++l) {
      for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 2}, {6, 1}}) {
        const auto [b, m] = run(&weights_.layer(l, first), count);
        bytes += b;
        macs += m;
      }
    }
    return {bytes, macs};
  }
  std::pair<double, double> head() { return run(&weights_.head(), 1); }

 private:
  std::pair<double, double> run(const Weight* w, int count) {
    MatmulParams p{};
    p.x = tensor_f32(x_.data(), rows_, w->k);
    p.scratch = scratch_.data();
    p.scratch_bytes = scratch_.size();
    p.num_valid = ValidCount(&valid_);
    float* out = out_.data();
    double bytes = 0, macs = 0;
    for (int i = 0; i < count; ++i) {
      p.parts[p.num_parts++] = {w[i], tensor_f32(out, rows_, w[i].n)};
      out += static_cast<size_t>(rows_) * static_cast<size_t>(w[i].n);
      bytes += static_cast<double>(row_bytes(w[i].dtype, w[i].k)) * w[i].n;
      macs += static_cast<double>(w[i].n) * w[i].k * rows_;
    }
    device::cpu::CpuStream stream(s_.pool);
    s_.ops->matmul(stream, p);
    return {bytes, macs};
  }

  const Setup& s_;
  const Weights& weights_;
  int32_t rows_;
  kv::NumValidTokens valid_;
  std::vector<float> x_, out_;
  std::vector<std::byte> scratch_;
};

void bench_matmul(const Setup& s) {
  const Weights weights;
  for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
    MatmulPass pass(s, weights, rows);
    std::pair<double, double> cost;
    const double layers = time_of(s, [&] { cost = pass.layers(); });
    report(s, fmt::format("matmul, 30 layers, {} rows", rows), layers, cost.first, cost.second);
    if (rows > 64) continue;
    const double head = time_of(s, [&] { cost = pass.head(); });
    report(s, fmt::format("matmul, lm_head Q8_0, {} rows", rows), head, cost.first, cost.second);
  }
}

// ---- attention of one layer ----

// `rows` requests with `context` tokens each, of which the last `queries` are in this step; blocks shuffled.
class AttentionStep {
 public:
  AttentionStep(const Setup& s, int32_t rows, int32_t context, int32_t queries)
      : s_(s), valid_rows_(rows), valid_tokens_(rows * queries) {
    const int32_t columns = (context + kBlockSize - 1) / kBlockSize;
    table_.assign(static_cast<size_t>((rows + 1) * columns), kv::kNullBlock);
    std::vector<uint32_t> ids(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i) + 1;
    std::shuffle(ids.begin(), ids.end(), std::mt19937(2));
    for (size_t i = 0; i < ids.size(); ++i) table_[static_cast<size_t>(columns) + i] = kv::BlockId(ids[i]);
    width_.assign(static_cast<size_t>(rows) + 1, columns);
    width_[0] = 0;
    first_.assign(width_.size(), 0);
    first_visible_.assign(static_cast<size_t>(rows), 0);
    for (int32_t b = 0; b < rows; ++b) {
      row_index_.push_back(b + 1);
      seq_len_.push_back(context);
      for (int32_t i = 0; i < queries; ++i) {
        token_row_.push_back(b);
        positions_.push_back(context - queries + i);
      }
    }
    const int64_t entry = kKvHeads * kHeadDim * 2, page = entry * kBlockSize;
    const int64_t stride = 2 * page * kLayers, live = stride * static_cast<int64_t>(ids.size());
    slabs_ = device::cpu::create_cpu_slabs({stride, static_cast<int64_t>(ids.size()) + 1}).value();
    std::fill_n(reinterpret_cast<uint16_t*>(slabs_->base() + stride), live / 2, f32_to_f16(0.125f));
    layer_ = {slabs_->base(),
              {2 * page * kLayers, 0, entry, kBlockSize},
              {2 * page * kLayers, page, entry, kBlockSize},
              kKvHeads,
              kHeadDim,
              DType::kF16};
    view_ = {table_.data(), width_.data(), first_.data(), rows + 1, columns, kBlockSize, columns * kBlockSize};
    const size_t floats = positions_.size() * kHeads * kHeadDim;
    q_ = random_floats(floats, 4);
    out_.resize(floats);
    scratch_.resize(s.ops->attention_scratch_bytes(kHeads, kHeadDim, context));
  }
  // Every layer once. Each has its own pages.
  void run() {
    AttentionParams p{};
    const auto tokens = static_cast<int32_t>(positions_.size());
    p.q = tensor_f32(q_.data(), tokens, kHeads * kHeadDim);
    p.out = tensor_f32(out_.data(), tokens, kHeads * kHeadDim);
    p.num_heads = kHeads;
    p.scale = 0.125f;
    p.scratch = scratch_.data();
    p.scratch_bytes = scratch_.size();
    p.view.padded_rows = static_cast<int32_t>(row_index_.size());
    p.view.padded_tokens = tokens;
    p.view.num_groups = 1;
    p.view.num_valid_rows = &valid_rows_;
    p.view.num_valid_tokens = &valid_tokens_;
    p.view.positions = positions_.data();
    p.view.token_row = token_row_.data();
    p.view.row_index = row_index_.data();
    p.view.seq_len = seq_len_.data();
    p.view.groups[0] = {view_, nullptr, first_visible_.data()};
    device::cpu::CpuStream stream(s_.pool);
    for (int l = 0; l < kLayers; ++l) {
      p.layer = layer_;
      p.layer.base += l * 2 * layer_.v.offset;
      s_.ops->attention(stream, p);
    }
  }
  // Products of q k and p v.
  double macs() const {
    double visible = 0;
    for (const int32_t pos : positions_) visible += pos + 1;
    return visible * 2 * kHeads * kHeadDim * kLayers;
  }
  double bytes() const {
    return static_cast<double>(seq_len_[0]) * static_cast<double>(seq_len_.size()) * kKvHeads * kHeadDim * 4 * kLayers;
  }

 private:
  const Setup& s_;
  kv::NumValidRows valid_rows_;
  kv::NumValidTokens valid_tokens_;
  std::vector<kv::BlockId> table_;
  std::vector<int32_t> width_, first_, first_visible_, row_index_, seq_len_, token_row_, positions_;
  std::unique_ptr<device::SlabMemory> slabs_;
  KvLayer layer_;
  kv::GroupView view_;
  std::vector<float> q_, out_;
  std::vector<std::byte> scratch_;
};

void bench_attention(const Setup& s) {
  struct Case {
    int32_t rows, context, queries;
  };
  for (const Case& c : {Case{1, 512, 1}, Case{1, 4096, 1}, Case{32, 256, 1}, Case{1, 512, 512}}) {
    AttentionStep step(s, c.rows, c.context, c.queries);
    const double seconds = time_of(s, [&] { step.run(); });
    report(s, fmt::format("attention, 30 layers, {} x {} of {}", c.rows, c.queries, c.context), seconds, step.bytes(),
           step.macs());
  }
}

int run(int argc, char** argv) {
  int threads = device::cpu::default_num_threads(), rounds = 7;
  std::string isa(cpu::fastest_table()->isa), only;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (arg == "--threads") {
      threads = std::max(1, std::atoi(value));
    } else if (arg == "--rounds") {
      rounds = std::max(1, std::atoi(value));
    } else if (arg == "--only") {
      only = value;
    } else if (arg == "--isa") {
      isa = value;
    } else {
      fmt::print(stderr, "usage: ops_cpu [--threads N] [--rounds N] [--isa NAME] [--only matmul|attention]\n");
      return 2;
    }
  }
  const OpTable* ops = cpu::table_by_name(isa);
  if (ops == nullptr) {
    fmt::print(stderr, "ops_cpu: --isa {}: not known, or not on this machine\n", isa);
    return 2;
  }
  const Machine machine = describe_machine();
  const MemoryRates memory = measure_memory(machine, true);
  Limits limits{1e9 * (threads == 1 ? memory.read_1 : memory.read_all_4k), 0};
  for (const ComputeRate& r : measure_compute(threads, true)) {
    const bool ours = isa == "avx2" ? r.isa == "avx2" : true;
    if (r.kind == "int16" && ours)
      limits.macs_per_s = std::max(limits.macs_per_s, 1e9 / 2 * (threads == 1 ? r.one : r.all));
  }
  fmt::print("{}: {}, {} threads, load {:.1f}; limits {:.1f} GB/s, {:.0f} GMAC/s of int16\n", machine.name, isa,
             threads, machine.load, limits.bytes_per_s / 1e9, limits.macs_per_s / 1e9);
  device::cpu::ThreadPool pool(threads);
  const Setup setup{ops, &pool, threads, rounds, limits};
  if (only != "attention") bench_matmul(setup);
  if (only != "matmul") bench_attention(setup);
  return 0;
}

}  // namespace
}  // namespace bz::bench

int main(int argc, char** argv) { return bz::bench::run(argc, argv); }
