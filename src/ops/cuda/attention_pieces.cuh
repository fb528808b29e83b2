// Attention of many tokens at once: the positions of a row in pieces of kPiece, on their way into shared memory.
//
// Pieces lie at absolute positions. Two teams share them by turns, or one has them all.
#pragma once

#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"

namespace bz::ops::cuda {

inline constexpr int kTeamWarps = 4;
inline constexpr int kTeamThreads = kTeamWarps * kWarp;
inline constexpr int kPiece = 64;  // positions
inline constexpr int kAhead = 4;   // pieces whose addresses are kept: of two, and of those still in use elsewhere
// At 128 a multiprocessor has room for two teams: as ctas of their own, which never wait for each other, they are a
// sixth faster.
template <int HD>
inline constexpr int kTeams = HD == 64 ? 2 : 1;
template <int HD>
inline constexpr int kPrefillThreads = kTeams<HD> * kTeamThreads;

__device__ inline int team() { return static_cast<int>(threadIdx.x) / kTeamThreads; }
__device__ inline int team_thread() { return static_cast<int>(threadIdx.x) % kTeamThreads; }
__device__ inline void team_sync() { asm volatile("bar.sync %0, %1;" ::"r"(1 + team()), "n"(kTeamThreads) : "memory"); }

// A team's shared memory. Aligned for the swizzle: units are exchanged in their address.
template <int HD>
struct alignas(256) TeamMemory {
  std::byte piece[2][2][kPiece * HD * 2];  // [turn][K, V][position][HD], 16-byte units swizzled
  int64_t entry[kAhead][2][kPiece];        // where a position's K and V lie, from the slabs' base; negative: nowhere
  uint32_t counts[kAhead][2];              // a bit a position: lies somewhere
};

// The team's pieces of the positions [begin, end) of one row, into shared memory.
template <int HD>
struct PieceReader {
  static constexpr int kRowBytes = HD * 2;
  static constexpr int kUnits = kRowBytes / 16;

  const AttentionParams& p;
  TeamMemory<HD>& memory;
  kv::RowId table_row;
  int begin, end;
  int head_offset;  // bytes of the KV head inside an entry

  // Which of the team's pieces it is.
  __device__ static int place_of(int piece) { return piece / kTeams<HD>; }

  // Where position tid % kPiece of a piece lies: its K for the team's first kPiece threads, its V for the others.
  __device__ int64_t look_up(int piece) const {
    static_assert(kTeamThreads == 2 * kPiece);
    const int tid = team_thread(), position = piece * kPiece + tid % kPiece;
    if (position < begin || position >= end) return -1;
    const kv::SlotId slot = kv::slot_of(p.view.groups[p.group].view, table_row, position);
    if (slot == kv::kPadSlot) return -1;
    return kv::entry_offset(tid < kPiece ? p.layer.k : p.layer.v, slot).value() + head_offset;
  }
  __device__ void publish(int piece, int64_t entry) const {
    const int tid = team_thread(), place = place_of(piece) % kAhead;
    memory.entry[place][tid / kPiece][tid % kPiece] = entry;
    const uint32_t counts = __ballot_sync(0xffffffffu, entry >= 0);
    if (tid < kPiece && tid % kWarp == 0) memory.counts[place][tid / kWarp] = counts;
  }
  // Sends for a published piece. What does not count is not read: zeros.
  __device__ void fetch(int piece) const {
    const int tid = team_thread(), unit = tid % kUnits, place = place_of(piece);
    constexpr int kRowsAtOnce = kTeamThreads / kUnits;
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory.piece[place % 2][plane]));
#pragma unroll 4
      for (int r = tid / kUnits; r < kPiece; r += kRowsAtOnce) {
        const int64_t entry = memory.entry[place % kAhead][plane][r];
        copy_async(to + r * kRowBytes + (unit ^ r % 8) * 16, p.layer.base + max(entry, int64_t{0}) + unit * 16,
                   entry >= 0);
      }
    }
    copies_commit();
  }
};

}  // namespace bz::ops::cuda
