#include "inference/op_timer.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "device/cpu/cpu_stream.h"

namespace bz::bench {
namespace {

OpTimer* g_timer = nullptr;
constexpr const char* kHost = "(host)";

// ---- what an op is called, and what it reads and computes ----

struct Host {};  // what runs between two graphs

OpTimer::Entry describe(const Host&) { return {kHost}; }
OpTimer::Entry describe(const ops::CopyBlocksParams&) { return {"copy_blocks"}; }
OpTimer::Entry describe(const ops::PrepareParams&) { return {"prepare"}; }
OpTimer::Entry describe(const ops::EmbedParams&) { return {"embed"}; }
OpTimer::Entry describe(const ops::RmsNormParams& p) { return {fmt::format("rms_norm {}", p.x.cols)}; }
OpTimer::Entry describe(const ops::RopeTableParams&) { return {"rope_table"}; }
OpTimer::Entry describe(const ops::RopeStoreParams&) { return {"rope_store"}; }
OpTimer::Entry describe(const ops::AttentionParams&) { return {"attention"}; }
OpTimer::Entry describe(const ops::SiluMulParams& p) { return {fmt::format("silu_mul {}", p.out.cols)}; }
OpTimer::Entry describe(const ops::GatherRowsParams&) { return {"gather_rows"}; }
OpTimer::Entry describe(const ops::SampleParams&) { return {"sample"}; }
OpTimer::Entry describe(const ops::AdjustLogitsParams&) { return {"adjust_logits"}; }
OpTimer::Entry describe(const ops::LogprobsParams&) { return {"logprobs"}; }
OpTimer::Entry describe(const ops::MatmulParams& p) {
  OpTimer::Entry e;
  std::string shape;
  for (int32_t i = 0; i < p.num_parts; ++i) {
    const ops::Weight& w = p.parts[i].weight;
    e.bytes += static_cast<double>(row_bytes(w.dtype, w.k) * w.n);
    e.row_ops += 2.0 * w.n * w.k;
    shape += fmt::format("{}{}", i == 0 ? "" : "+", w.n);
  }
  const ops::Weight& first = p.parts[0].weight;
  e.name = fmt::format("matmul {} {} x {}", dtype_info(first.dtype).name, shape, first.k);
  return e;
}

// ---- stamps ----

struct StampParams {
  OpTimer* timer;
  OpTimer::Entry* entry;
  ops::ValidCount rows;  // whose operations count; of a matmul only
  bool has_rows;
};

void stamp_kernel(const StampParams& p, device::cpu::Worker& worker) {
  if (worker.index() == 0) p.timer->stamp(p.entry, p.has_rows ? p.rows.get() : 0);
}

template <class Params>
void enqueue_stamp(device::Stream& stream, const Params& params) {
  StampParams stamp{g_timer, g_timer->find(describe(params)), {}, false};
  if constexpr (std::is_same_v<Params, ops::MatmulParams>) {
    stamp.rows = params.num_valid;
    stamp.has_rows = true;
  }
  device::cpu::enqueue<StampParams>(stream, "stamp", stamp, stamp_kernel);
}

template <auto op, class Params>
void timed(device::Stream& stream, const Params& params) {
  if constexpr (std::is_same_v<Params, ops::PrepareParams>) enqueue_stamp(stream, Host{});
  (g_timer->inner().*op)(stream, params);
  enqueue_stamp(stream, params);
}

ops::OpTable timed_table(const ops::OpTable& inner) {
  using ops::OpTable;
  OpTable t = inner;  // with the sizes and questions, which are not timed
  t.copy_blocks = timed<&OpTable::copy_blocks, ops::CopyBlocksParams>;
  t.prepare = timed<&OpTable::prepare, ops::PrepareParams>;
  t.embed = timed<&OpTable::embed, ops::EmbedParams>;
  t.rms_norm = timed<&OpTable::rms_norm, ops::RmsNormParams>;
  t.matmul = timed<&OpTable::matmul, ops::MatmulParams>;
  t.rope_table = timed<&OpTable::rope_table, ops::RopeTableParams>;
  t.rope_store = timed<&OpTable::rope_store, ops::RopeStoreParams>;
  t.attention = timed<&OpTable::attention, ops::AttentionParams>;
  t.silu_mul = timed<&OpTable::silu_mul, ops::SiluMulParams>;
  t.gather_rows = timed<&OpTable::gather_rows, ops::GatherRowsParams>;
  t.sample_greedy = timed<&OpTable::sample_greedy, ops::SampleParams>;
  t.sample_random = timed<&OpTable::sample_random, ops::SampleParams>;
  t.adjust_logits = timed<&OpTable::adjust_logits, ops::AdjustLogitsParams>;
  t.logprobs = timed<&OpTable::logprobs, ops::LogprobsParams>;
  return t;
}

}  // namespace

OpTimer::OpTimer(const ops::OpTable& inner) : inner_(inner), table_(timed_table(inner)) {
  BZ_CHECK_MSG(g_timer == nullptr, "one OpTimer at a time");
  g_timer = this;
}

OpTimer::~OpTimer() { g_timer = nullptr; }

OpTimer::Entry* OpTimer::find(const Entry& wanted) {
  for (Entry& e : entries_) {
    if (e.name == wanted.name) return &e;
  }
  entries_.push_back(wanted);
  return &entries_.back();
}

void OpTimer::stamp(Entry* entry, int32_t rows) {
  const Clock::time_point now = Clock::now();
  entry->step_seconds += std::chrono::duration<double>(now - last_).count();
  entry->step_ops += entry->row_ops * rows;
  ++entry->step_calls;
  last_ = now;
}

void OpTimer::begin_step() {
  for (Entry& e : entries_) {
    e.step_calls = 0;
    e.step_ops = 0;
    e.step_seconds = 0;
  }
  last_ = Clock::now();
}

void OpTimer::end_step(bool counted) {
  stamp(find({kHost}), 0);  // what came after the last op
  if (!counted) return;
  for (Entry& e : entries_) {
    e.calls += e.step_calls;
    e.seconds += e.step_seconds;
    e.ops += e.step_ops;
  }
}

void OpTimer::reset() {
  for (Entry& e : entries_) {
    e.calls = 0;
    e.seconds = 0;
    e.ops = 0;
  }
}

std::string OpTimer::report(int64_t steps) const {
  std::vector<Entry> sorted(entries_.begin(), entries_.end());
  std::sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.seconds > b.seconds; });
  double total = 0;
  for (const Entry& e : sorted) total += e.seconds;
  const auto n = static_cast<double>(steps);
  std::string text = fmt::format("{:<34} {:>10} {:>10} {:>9} {:>6} {:>8} {:>8}\n", "op", "calls/step", "us/call",
                                 "us/step", "%", "GB/s", "GOP/s");
  for (const Entry& e : sorted) {
    if (e.calls == 0) continue;
    const auto calls = static_cast<double>(e.calls);
    text += fmt::format("{:<34} {:>10.1f} {:>10.2f} {:>9.1f} {:>6.1f}", e.name, calls / n, e.seconds / calls * 1e6,
                        e.seconds / n * 1e6, e.seconds / total * 100);
    if (e.bytes > 0) {
      text += fmt::format(" {:>8.1f} {:>8.1f}", e.bytes * calls / e.seconds / 1e9, e.ops / e.seconds / 1e9);
    }
    text += "\n";
  }
  return text + fmt::format("{:<34} {:>10} {:>10} {:>9.1f}\n", "sum", "", "", total / n * 1e6);
}

}  // namespace bz::bench
