// Short, exactly repeatable lives of an engine, each laid out so that a certain fault has something to break.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/slab_memory.h"
#include "support/session.h"

namespace bz::test {

enum class Scenario {
  kPaddedDecode,       // warm-up, then three requests in steps padded to four rows
  kRowChangesHands,    // a request begins on the table row that padded batch rows named three steps ago
  kBlocksChangeHands,  // ... and on the blocks that a finished request owned, while its old row is not reused
  kIdleRank,           // a dummy step falls on the ring slot of the running request's first step
  kIdleRankLater,      // ... of a request that has ended, whose row and blocks another one owns by now
};

struct Outcome {
  Trace trace;
  bool alive = true;
  std::string failure;  // why the engine stopped
  bool null_block_clean = true;
  std::vector<std::string> violations;  // of the sanitizer
};

// Plays a scenario on a fresh engine with these ops, under these mutations (bits of base/mutation.h).
Outcome play(const std::string& model_path, const std::string& isa, Scenario scenario, uint32_t mutations,
             device::NullGuard guard, bool sanitize);

// The answers of a scenario's requests, each alone in an engine without mutations.
Trace right_answers(const std::string& model_path, const std::string& isa, Scenario scenario);

}  // namespace bz::test
