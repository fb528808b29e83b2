// Mutations: the faults of public engines, brought back on purpose, so that tests and `blockzero audit` can show that
// the guards catch them. A compile-time policy of the shipped translation units: without BZ_MUTATIONS `mutated()` is a
// constant false and release code pays nothing; with it (a second target of the same sources) one fault is switched on
// at run time.
#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace bz {

enum class Mutation : uint8_t {
  kNone,
  kSlotWithoutNullTest,   // F01: generic slot without the null test
  kStageOnlyLiveRows,     // F06, F11: only the live part of the staging is written
  kReleaseWithoutChange,  // F07, F08: a released row keeps its device table
  kDummySkipsStaging,     // F09, F10: a dummy step replays without restaging
  kZeroFilledSlots,       // F25: slot buffers start at 0, a valid slot, and padding keeps what it finds
};

#if defined(BZ_MUTATIONS)
// The mutation in force. Set between steps only.
inline Mutation g_mutation = Mutation::kNone;
constexpr bool mutated(Mutation m) {
  if (__builtin_is_constant_evaluated()) return false;
  return g_mutation == m;
}
#else
BZ_HD constexpr bool mutated(Mutation) { return false; }
#endif

}  // namespace bz
