#include "engine/flight_recorder.h"

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/fault_record.h"

namespace bz::engine {
namespace {

// One row's table in every group, and its length before the plan's tokens.
void add_row_changes(const kv::BlockTables& tables, const RecordedRow& r, std::vector<kv::TableChange>& changes) {
  const kv::RowId row(r.row);
  const auto start = static_cast<uint32_t>(r.max_seq_len - r.query_len);
  changes.push_back({kv::ChangeKind::kRowStart, kv::GroupId(0), row, 0, start});
  tables.restate_row(row, changes);
}

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
  FaultRecord record;
  record.failed = failed;
  record.options = options;
  std::set<int32_t> rows_seen;
  const uint64_t oldest = failed >= kSteps ? failed - kSteps + 1 : 1;
  for (uint64_t sequence = oldest; sequence < failed + kSteps; ++sequence) {
    const RecordedStep* step = find(sequence);
    if (step == nullptr) continue;
    record.steps.push_back(*step);
    if (sequence < failed) continue;
    for (const RecordedRow& row : step->rows) {
      if (rows_seen.insert(row.row).second) add_row_changes(tables, row, record.tables);
    }
  }
  std::ofstream out(path);
  out << fault_record_text(record);
  out.close();
  return out ? ok_status() : internal_error("{}: cannot be written", path);
}

std::string fault_record_path() {
  const char* folder = std::getenv("BLOCKZERO_FAULT_DIR");
  std::error_code none;  // a process that faults must not end of a bad TMPDIR
  const std::filesystem::path base = folder != nullptr ? folder : std::filesystem::temp_directory_path(none);
  return (base / fmt::format("blockzero-fault-{}.json", ::getpid())).string();
}

}  // namespace bz::engine
