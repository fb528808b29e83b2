// Transfers: blocks on their way to or from another process. The core pins them; it moves no bytes (XFER-1).
//
// Owned by CacheManager, which holds one reference per listed block while the transfer lives. Time is the caller's
// integer: whatever clock it uses, `now` never comes from here.
//
// Invariants
//   1. Pins are dropped only when no operation runs: an operation cannot be aborted, only waited for.
//   2. A receive's blocks are in no table before every operation succeeded; if one failed they never are.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "kv/types.h"

namespace bz::kv {

using TransferId = StrongId<struct TransferTag, int32_t>;

enum class TransferKind : uint8_t { kSend, kReceive };
enum class TransferState : uint8_t {
  kFree,     // no such transfer
  kRunning,  // its blocks are pinned
  kDone,     // every operation succeeded; pins dropped
  kFailed,   // an operation failed or the lease expired; pins dropped
};

// Whole slabs, neighbours merged: `length` bytes at `offset` of the region of slabs.
struct Piece {
  int64_t offset;
  int64_t length;
  bool operator==(const Piece&) const = default;
};

struct TransferBlock {
  GroupId group;
  int32_t column;
  BlockId block;
  bool operator==(const TransferBlock&) const = default;
};

struct Transfer {
  TransferState state = TransferState::kFree;
  TransferKind kind = TransferKind::kSend;
  RowId row = kNullRow;  // kNullRow: the row was released meanwhile
  int32_t num_tokens = 0;
  int32_t ops_left = 0;     // operations that have not finished yet
  int32_t ops_running = 0;  // of those, begun
  bool failed = false;      // some operation failed
  bool expired = false;     // the lease ran out while operations ran
  int64_t deadline = 0;     // kSend
  std::vector<TransferBlock> blocks;
  bool operator==(const Transfer&) const = default;
};

// The pieces of a transfer's blocks, in the order of their ids.
void pieces_of(const Transfer& transfer, int64_t block_stride, std::vector<Piece>& pieces);

}  // namespace bz::kv
