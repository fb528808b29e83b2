// FlightRecorder: the last plans, kept so that a fault of the device can be looked at afterwards.
//
// A kernel that writes where it must not (the guard, design: fail-stop) ends the CUDA context: the process saves a
// fault record and exits 1, naming step and graph key. A new process (`blockzero replay FILE`) runs the steps that were
// on their way once more, op by op, at the same addresses over arbitrary bytes, and names op, layer, group and row.
//
// A record holds the engine's options, the last plans without their tokens, and the tables and lengths of the rows in
// the plans, as changes that put them on a device (a mirror of RowState: what the host knows of it). No prompt and no
// answer is in it. One thread; steady steps allocate nothing (ENG-3).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/graph_key.h"
#include "engine/step_plan.h"
#include "kv/block_table.h"

namespace bz::engine {

struct LoadOptions;

// What addresses depend on.
struct RecordedRow {
  int32_t row, query_len, num_logits, max_seq_len, num_samples;
  bool greedy;
};

struct RecordedStep {
  uint64_t sequence = 0;  // 0: none yet
  GraphKey key;
  std::vector<RecordedRow> rows;
  int32_t num_tokens = 0;
};

class FlightRecorder {
 public:
  static constexpr size_t kSteps = 8;

  explicit FlightRecorder(int32_t max_rows);
  void record(const StepPlan& plan, const GraphKey& key);
  // Of a sequence number; nullptr: too old.
  const RecordedStep* find(uint64_t sequence) const;
  // Writes a record to `path`. failed: the step that was waited for when the fault came.
  Status save(const std::string& path, const LoadOptions& options, const kv::BlockTables& tables,
              uint64_t failed) const;

 private:
  std::array<RecordedStep, kSteps> steps_;  // by sequence, modulo
};

// "<folder>/blockzero-fault-<process id>.json"; the folder is $BLOCKZERO_FAULT_DIR, else the temporary one.
std::string fault_record_path();

}  // namespace bz::engine
