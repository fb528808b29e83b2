// A kernel that is not ours, as tests play it: out[r] = weights of row r's entries times their values, summed. Each
// fault is one that public kernels have had.
#pragma once

#include "ops/params.h"

namespace bz::ops::foreign {

enum class KernelFault : int32_t {
  kNone,
  kClampAndMask,     // F14: an absent entry reads block 0, times 0
  kWholeTile,        // F17: reads its block to the end, times 0
  kDividesByLength,  // F12: 0/0 in a padded row, otherwise right
  kLeavesRows,       // F13: padded rows unwritten, otherwise right
  kWritesBlockZero,  // F01
  kSkipsALiveRow,    // writes nothing for row 1
};

struct TestKernelParams {
  static constexpr int kBlock = 4;  // entries
  const float* cache;               // [blocks][kBlock]; written too, by the faulty one
  const int32_t* table;             // [R] one block a row; -1: none
  const int32_t* seq_len;           // [R]
  TensorRef out;                    // f32 [R, 4]
  KernelFault fault;
};

BZ_HD inline void test_kernel_row(const TestKernelParams& p, int32_t r) {
  const int32_t length = p.seq_len[r], block = p.table[r];
  if (p.fault == KernelFault::kWritesBlockZero) const_cast<float*>(p.cache)[r % TestKernelParams::kBlock] = 1.0f;
  if (length == 0 && p.fault == KernelFault::kLeavesRows) return;
  if (r == 1 && p.fault == KernelFault::kSkipsALiveRow) return;
  float sum = 0;
  for (int32_t i = 0; i < TestKernelParams::kBlock; ++i) {
    const bool counts = i < length;
    if (!counts && p.fault == KernelFault::kWholeTile && block >= 0) {
      sum += 0.0f * p.cache[block * TestKernelParams::kBlock + i];
    }
    if (!counts && p.fault == KernelFault::kClampAndMask) sum += 0.0f * p.cache[i];
    if (counts) sum += p.cache[block * TestKernelParams::kBlock + i];
  }
  const bool divides = length > 0 || p.fault == KernelFault::kDividesByLength;
  for (int32_t i = 0; i < p.out.cols; ++i) {
    p.out.row<float>(r)[i] = divides ? sum / static_cast<float>(length) + static_cast<float>(i) : 0.0f;
  }
}

// Rows: 0 and 1 live with 3 and 4 entries, 2 and 3 padding. Blocks: 0 null, 1 and 2 owned, 3 free. What a test places
// in memory of the device under test.
struct TestKernelStep {
  static constexpr int kRows = 4, kBlocks = 4, kCols = 4;
  float cache[kBlocks * TestKernelParams::kBlock] = {0, 0, 0, 0, 1, 2, 3, 9, 4, 5, 6, 7, 9, 9, 9, 9};
  int32_t table[kRows] = {1, 2, -1, -1};
  int32_t seq_len[kRows] = {3, 4, 0, 0};
  float out[kRows * kCols] = {};
};

}  // namespace bz::ops::foreign
