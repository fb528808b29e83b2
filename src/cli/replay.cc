#include "cli/replay.h"

#include "base/log.h"
#include "engine/fault_record.h"

namespace bz::cli {

void add_replay_options(CLI::App& command, ReplayOptions& o) {
  command.add_option("record", o.path, "the file that a fault of the device printed")->required();
}

Status replay(const ReplayOptions& o) {
  BZ_TRY(engine::replay_fault_record(o.path, [](const std::string& line) { log::info("{}", line); }));
  log::info("no fault came back: these addresses are right; what faulted depends on the cache's bytes or on timing");
  return ok_status();
}

}  // namespace bz::cli
