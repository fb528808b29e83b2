// replay_fault_record: the steps of a record once more, op by op, at the addresses they had.
#include <algorithm>
#include <cstdlib>

#include "engine/fault_record.h"
#include "formats/text_file.h"

namespace bz::engine {
namespace {

// Of the text; read, it takes about ten times as much memory.
constexpr size_t kMaxRecordBytes = size_t{256} << 20;

// The plan of a recorded step, its tokens all 0: addresses do not depend on them.
StepPlan plan_from(const RecordedStep& step) {
  StepPlan plan;
  plan.min_tokens = step.key.tokens;
  plan.min_rows = step.key.rows;
  plan.tokens.assign(static_cast<size_t>(step.num_tokens), 0);
  for (const RecordedRow& r : step.rows) {
    PlanRow row;
    row.row = kv::RowId(r.row);
    row.query_len = r.query_len;
    row.num_logits = r.num_logits;
    row.max_seq_len = r.max_seq_len;
    row.num_samples = r.num_samples;
    row.sampling.temperature = r.greedy ? 0.0f : 1.0f;
    row.sampling.top_p = 1.0f;
    plan.rows.push_back(row);
  }
  return plan;
}

template <class T>
std::vector<T> fetch(device::Device& device, const T* from, int32_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  device.copy_to_host(host.data(), from, host.size() * sizeof(T));
  return host;
}

// Derived slots that lie in no block a request may own.
void report_slots(LoadedModel& model, const ops::StepView& v, const std::function<void(const std::string&)>& say) {
  const auto token_row = fetch(model.device(), v.token_row, v.padded_tokens);
  const auto row_index = fetch(model.device(), v.row_index, v.padded_rows);
  for (int32_t g = 0; g < v.num_groups; ++g) {
    const auto slots = fetch(model.device(), v.groups[g].slots, v.padded_tokens);
    for (int32_t t = 0; t < v.padded_tokens; ++t) {
      const int64_t slot = slots[static_cast<size_t>(t)].value(), size = v.groups[g].view.block_size;
      const int64_t block = slot >= 0 ? slot / size : -1;
      if (slot == kv::kPadSlot.value() || (block > 0 && block < model.plan().layout.num_blocks)) continue;
      const int32_t batch_row = token_row[static_cast<size_t>(t)];
      const int32_t row = batch_row >= 0 ? row_index[static_cast<size_t>(batch_row)] : 0;
      say(fmt::format("group {}: token {} of table row {}{} writes slot {} in block {}{}", g, t, row,
                      batch_row < 0 ? " (padding)" : "", slot, block, block == 0 ? ", the null block" : ""));
    }
  }
}

class Replay {
 public:
  Replay(LoadedModel& model, const std::function<void(const std::string&)>& say) : model_(model), say_(say) {}

  void apply(const std::vector<kv::TableChange>& changes) {
    const auto most = static_cast<size_t>(model_.runner().config().limits.max_changes);
    for (size_t at = 0; at < changes.size(); at += most) {
      StepPlan plan;
      const auto end = changes.begin() + static_cast<int64_t>(std::min(changes.size(), at + most));
      plan.cache.changes.assign(changes.begin() + static_cast<int64_t>(at), end);
      run(plan);
    }
  }
  void step(const RecordedStep& recorded) {
    StepPlan plan = plan_from(recorded);
    const std::string graph = choose_graph_key(model_.runner().graph_limits(), plan.shape()).name();
    say_(fmt::format("step {}, graph {}: {} rows, {} tokens, op by op", recorded.sequence, graph, plan.rows.size(),
                     plan.tokens.size()));
    plan.cache.sequence = ++sequence_;
    report_slots(model_, model_.runner().derive(plan), say_);
    run(plan);
  }

 private:
  void run(StepPlan& plan) {
    plan.cache.sequence = ++sequence_;
    model_.runner().run(plan);
    model_.runner().wait(plan.cache.sequence);
  }
  LoadedModel& model_;
  const std::function<void(const std::string&)>& say_;
  uint64_t sequence_ = 0;
};

Status replay(const std::string& path, const FaultRecord& record, const std::function<void(const std::string&)>& say) {
  ::setenv("BLOCKZERO_CUDA_SYNC", "1", 1);  // wait for every op
  const auto loaded = LoadedModel::load(record.options, say);
  if (!loaded.ok()) {
    const Status& s = loaded.status();
    return Status(s.code(), fmt::format("{}: its options: {}", path, s.message()));
  }
  LoadedModel& model = **loaded;
  const Status fits = check_fault_record(record, model.runner().config());
  if (!fits.ok()) return invalid_argument("{}: contradicts itself: {}", path, fits.message());
  Replay replay(model, say);
  replay.apply(record.tables);
  for (const RecordedStep& step : record.steps) {
    if (step.sequence >= record.failed) replay.step(step);
  }
  return ok_status();
}

}  // namespace

Status replay_fault_record(const std::string& path, const std::function<void(const std::string&)>& say) {
  BZ_ASSIGN(const std::string text, formats::read_text_file(path, kMaxRecordBytes));
  const auto record = parse_fault_record(text);
  if (record.ok()) return replay(path, *record, say);
  return invalid_argument("{}: is no fault record: {}; name the file that a fault printed", path,
                          record.status().message());
}

}  // namespace bz::engine
