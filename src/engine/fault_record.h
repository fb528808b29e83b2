// FaultRecord: what a fault of the device leaves behind (flight_recorder.h), as a value and as the text of its file.
//
// A file comes from outside, and people edit records to try a thing: parse_fault_record trusts no field, and
// check_fault_record nothing that the rest of the record contradicts. What passes both stages and runs without tripping
// a check of ours. Blocks are the exception: a table may point anywhere, it may be what faulted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/flight_recorder.h"
#include "engine/loaded_model.h"

namespace bz::engine {

struct FaultRecord {
  uint64_t failed = 0;  // the step that was waited for when the fault came
  LoadOptions options;
  std::vector<RecordedStep> steps;      // ascending; of their keys tokens and rows alone
  std::vector<kv::TableChange> tables;  // bring null tables to the state of the rows that ran
};

std::string fault_record_text(const FaultRecord& record);
// Errors: one line that names the field.
Result<FaultRecord> parse_fault_record(std::string_view text);
// Do steps and tables fit what the options load?
Status check_fault_record(const FaultRecord& record, const RunnerConfig& config);

// Replays a record's steps. Before each, what is wrong with the addresses that prepare derives is said, one line each:
// group, token, row, slot, block. Then a fault ends this process as it ended the other, named to the op and layer. ok:
// none came back.
Status replay_fault_record(const std::string& path, const std::function<void(const std::string& line)>& say);

}  // namespace bz::engine
