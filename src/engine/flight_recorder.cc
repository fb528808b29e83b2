#include "engine/flight_recorder.h"

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "engine/loaded_model.h"
#include "formats/text_file.h"

namespace bz::engine {
namespace {

using nlohmann::json;

json to_json(const LoadOptions& o) {
  return {{"model_path", std::filesystem::absolute(o.model_path).string()},
          {"random_weights", o.random_weights},
          {"device", o.device.name},
          {"null_guard", static_cast<int>(o.null_guard)},
          {"kv_dtype", static_cast<int>(*o.kv_dtype)},
          {"kv_cache_bytes", o.kv_cache_bytes},
          {"block_size", o.block_size},
          {"max_num_seqs", o.max_num_seqs},
          {"max_num_batched_tokens", o.max_num_batched_tokens},
          {"max_model_len", o.max_model_len},
          {"num_draft_tokens", o.num_draft_tokens},
          {"batch_invariant", o.batch_invariant}};
}

LoadOptions options_from(const json& j) {
  LoadOptions o;
  o.model_path = j.at("model_path");
  o.random_weights = j.at("random_weights");
  o.device.name = j.at("device");
  o.null_guard = static_cast<device::NullGuard>(j.at("null_guard").get<int>());
  o.kv_dtype = static_cast<DType>(j.at("kv_dtype").get<int>());
  o.kv_cache_bytes = j.at("kv_cache_bytes");
  o.block_size = j.at("block_size");
  o.max_num_seqs = j.at("max_num_seqs");
  o.max_num_batched_tokens = j.at("max_num_batched_tokens");
  o.max_model_len = j.at("max_model_len");
  o.num_draft_tokens = j.at("num_draft_tokens");
  o.batch_invariant = j.at("batch_invariant");
  o.graphs = GraphMode::kNone;  // op by op
  o.record_faults = false;
  return o;
}

json to_json(const RecordedStep& step) {
  json rows = json::array();
  for (const RecordedRow& r : step.rows) {
    rows.push_back({r.row, r.query_len, r.num_logits, r.max_seq_len, r.num_samples, r.greedy});
  }
  return {{"sequence", step.sequence}, {"graph", step.key.name()},      {"min_tokens", step.key.tokens},
          {"min_rows", step.key.rows}, {"num_tokens", step.num_tokens}, {"rows", rows}};
}

// The plan of a recorded step, its tokens all 0: addresses do not depend on them.
StepPlan plan_from(const json& j) {
  StepPlan plan;
  plan.min_tokens = j.at("min_tokens");
  plan.min_rows = j.at("min_rows");
  plan.tokens.assign(j.at("num_tokens").get<size_t>(), 0);
  for (const json& r : j.at("rows")) {
    PlanRow row;
    row.row = kv::RowId(r.at(0).get<int32_t>());
    row.query_len = r.at(1);
    row.num_logits = r.at(2);
    row.max_seq_len = r.at(3);
    row.num_samples = r.at(4);
    row.sampling.temperature = r.at(5).get<bool>() ? 0.0f : 1.0f;
    row.sampling.top_p = 1.0f;
    plan.rows.push_back(row);
  }
  return plan;
}

// One row's table in every group, and its length before the plan's tokens.
void add_row_changes(const kv::BlockTables& tables, const RecordedRow& r, std::vector<kv::TableChange>& changes) {
  const kv::RowId row(r.row);
  const auto start = static_cast<uint32_t>(r.max_seq_len - r.query_len);
  changes.push_back({kv::ChangeKind::kRowStart, kv::GroupId(0), row, 0, start});
  tables.restate_row(row, changes);
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
  void step(const json& recorded) {
    StepPlan plan = plan_from(recorded);
    say_(fmt::format("step {}, graph {}: {} rows, {} tokens, op by op", recorded.at("sequence").get<uint64_t>(),
                     recorded.at("graph").get<std::string>(), plan.rows.size(), plan.tokens.size()));
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

}  // namespace

FlightRecorder::FlightRecorder(int32_t max_rows) {
  for (RecordedStep& step : steps_) step.rows.reserve(static_cast<size_t>(max_rows));
}

void FlightRecorder::record(const StepPlan& plan, const GraphKey& key) {
  RecordedStep& step = steps_[plan.cache.sequence % kSteps];
  step.sequence = plan.cache.sequence;
  step.key = key;
  step.rows.clear();
  for (const PlanRow& r : plan.rows) {
    step.rows.push_back(
        {r.row.value(), r.query_len, r.num_logits, r.max_seq_len, r.num_samples, r.sampling.temperature <= 0});
  }
  step.num_tokens = static_cast<int32_t>(plan.tokens.size());
}

const RecordedStep* FlightRecorder::find(uint64_t sequence) const {
  const RecordedStep& step = steps_[sequence % kSteps];
  return step.sequence == sequence && sequence > 0 ? &step : nullptr;
}

Status FlightRecorder::save(const std::string& path, const LoadOptions& options, const kv::BlockTables& tables,
                            uint64_t failed) const {
  json steps = json::array();
  std::vector<kv::TableChange> changes;
  std::set<int32_t> rows_seen;
  const uint64_t oldest = failed >= kSteps ? failed - kSteps + 1 : 1;
  for (uint64_t sequence = oldest; sequence < failed + kSteps; ++sequence) {
    const RecordedStep* step = find(sequence);
    if (step == nullptr) continue;
    steps.push_back(to_json(*step));
    if (sequence < failed) continue;
    for (const RecordedRow& row : step->rows) {
      if (rows_seen.insert(row.row).second) add_row_changes(tables, row, changes);
    }
  }
  json table = json::array();
  for (const kv::TableChange& c : changes) {
    table.push_back({static_cast<uint32_t>(c.kind), c.group.value(), c.row.value(), c.column, c.value});
  }
  std::ofstream out(path);
  out << json{{"record", "blockzero fault 1"},
              {"failed", failed},
              {"options", to_json(options)},
              {"steps", steps},
              {"tables", table}};
  out.close();
  return out ? ok_status() : internal_error("{}: cannot be written", path);
}

std::string fault_record_path() {
  const char* folder = std::getenv("BLOCKZERO_FAULT_DIR");
  std::error_code none;  // a process that faults must not end of a bad TMPDIR
  const std::filesystem::path base = folder != nullptr ? folder : std::filesystem::temp_directory_path(none);
  return (base / fmt::format("blockzero-fault-{}.json", ::getpid())).string();
}

namespace {

constexpr size_t kMaxRecordBytes = size_t{1} << 30;

Status replay_record(const json& record, const std::function<void(const std::string&)>& say) {
  ::setenv("BLOCKZERO_CUDA_SYNC", "1", 1);  // wait for every op
  BZ_ASSIGN(const auto model, LoadedModel::load(options_from(record.at("options")), say));
  Replay replay(*model, say);
  std::vector<kv::TableChange> changes;
  for (const json& c : record.at("tables")) {
    changes.push_back({static_cast<kv::ChangeKind>(c.at(0).get<uint32_t>()), kv::GroupId(c.at(1).get<int32_t>()),
                       kv::RowId(c.at(2).get<int32_t>()), c.at(3).get<int32_t>(), c.at(4).get<uint32_t>()});
  }
  replay.apply(changes);
  const auto failed = record.at("failed").get<uint64_t>();
  for (const json& step : record.at("steps")) {
    if (step.at("sequence").get<uint64_t>() >= failed) replay.step(step);
  }
  return ok_status();
}

}  // namespace

Status replay_fault_record(const std::string& path, const std::function<void(const std::string&)>& say) {
  BZ_ASSIGN(const std::string text, formats::read_text_file(path, kMaxRecordBytes));
  const json record = json::parse(text, nullptr, false);
  Status no_record = invalid_argument("{}: is no fault record; name the file that a fault printed", path);
  if (!record.is_object() || !record.contains("record") || record["record"] != "blockzero fault 1") return no_record;
  try {
    return replay_record(record, say);
  } catch (const json::exception&) {  // a field is missing or of another type
    return no_record;
  }
}

}  // namespace bz::engine
