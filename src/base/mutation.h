// Mutations: the faults of public engines (docs/faults.md), brought back on purpose, so that tests show that the guards
// catch them. A compile-time policy of the shipped translation units: without BZ_MUTATIONS `mutated()` is a
// constant false and release code pays nothing; with it (a second target of the same sources) one fault is switched on
// at run time.
#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace bz {

enum class Mutation : uint32_t {
  kSlotWithoutNullTest,   // F01: generic slot without the null test
  kCountPaddedAsValid,    // F06: padding counted from the padded size
  kStageOnlyLiveRows,     // F11: only the live part of the rows is staged
  kReleaseWithoutChange,  // F07, F08: a released row keeps its device table
  kDummySkipsStaging,     // F09, F10: a dummy step replays without restaging
  kZeroFilledSlots,       // F25: slot buffers start at 0, a valid slot, and padding keeps what it finds
  kRingWithoutKeepRule,   // F20: of a chunk longer than a ring every token maps
  kWindowByScheduled,     // F21: blocks leave a window by scheduled tokens
  kReleaseWithoutFence,   // F22: blocks in flight are handed out again
  kPinsDroppedEarly,      // F22: a transfer's blocks are let go while an operation still runs
  kFailedLoadIsTaken,     // F28: a failed load counts as done
  kHitsTakenLate,         // F23: a group's hits are taken after other groups have allocated
  kPublishAtSchedule,     // F24: hashes are published before the step that computes the blocks
  kHitWithoutTokens,      // KV-3: a hit is believed by its hash
  kSharedBlockIsWritten,  // KV-6: no copy before a shared block is written
  kHitInsideRing,         // RING-2: a hit is not cut to whole windows of a ring
  kNoZeroing,             // F17: a kernel that reads before it writes finds a former owner's bytes
  kNullBlockIsGivenOut,   // PAD-1: the pool hands out block 0
  kEmptyRowsUnwritten,    // F13: attention leaves the outputs of padded rows as they were
  kReadsWholeBlocks,      // F17: attention reads a block to its end, past the row's length
  kRandomByPlace,         // PAD-9b: random numbers depend on a row's place in the batch
  kDenseStride,           // F18: blocks are addressed as if nothing else lay in a slab
  kOneStatePerRow,        // STATE-1: a verify step has no states to go back to
  kRejectedDraftsStay,    // speculation: drafts that were not accepted count as computed
  kStagingSlotReused,     // HOST-1: a slot is staged again before its step's results were read
  kNanIsAToken,           // ENG-1: a row of NaN logits is taken for an answer
  kFinishKeepsRow,        // ENG-2: a request that ended keeps its blocks
  kPlansForgetCapacity,   // ENG-3: a plan's vectors are made anew each step
  // Checks switched off, to show what the mutations above do without them.
  kNoSequenceCheck,  // PAD-10: prepare takes whatever slot it finds
  kNoReserveCheck,   // a row may grow past what its plan reserved
};

#if defined(BZ_MUTATIONS)
// The mutations in force, one bit each: several, where harm needs a partner. Set between steps only, on a GPU before
// anything is captured.
inline uint32_t g_mutations = 0;
#if defined(__CUDACC__)
// The device's copy, one a translation unit: its kernels take the bits as a parameter and set it first.
static __device__ uint32_t g_device_mutations;
#endif
BZ_HD constexpr uint32_t mutation_bit(Mutation m) { return 1u << static_cast<uint32_t>(m); }
// Not constexpr, so that no initialiser is evaluated at compile time as if nothing were mutated.
BZ_HD inline bool mutated(Mutation m) {
#if defined(__CUDA_ARCH__)
  return (g_device_mutations & mutation_bit(m)) != 0;
#else
  return (g_mutations & mutation_bit(m)) != 0;
#endif
}
inline uint32_t mutations_in_force() { return g_mutations; }
#else
BZ_HD constexpr bool mutated(Mutation) { return false; }
constexpr uint32_t mutations_in_force() { return 0; }
#endif

}  // namespace bz
