// The first node of every step (docs/architecture.md, one step). One cta: it reads the host-mapped staging slot in
// place (no copy node), counts the step, applies the table changes, and derives the step view over its whole padded
// extent through kv/slot.h and nothing else (PAD-2, PAD-4). The same as ops/cpu/prepare.cc, in parallel.
#include "ops/cuda/checks.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/prepare_changes.cuh"
#include "ops/cuda/prepare_lists.cuh"
#include "ops/prepare_rules.h"

namespace bz::ops::cuda {
namespace {

using kv::kNullRow;

constexpr int kThreads = kPrepareThreads;

struct Shared {
  int32_t* query_start;   // [R + 1]
  int32_t* staged_start;  // [R + 1] where a row's tokens were staged: before query_start if drafts are missing
  int32_t* table_row;     // [R]
  int* any_history;
};

// What a thread's first row and token were staged as: fetched together with the header, because a read of the host's
// memory takes microseconds. Later ones (more than kThreads rows) are read where they are needed.
struct Fetched {
  StagedRow row;
  int32_t token;
};

// query_start: monotone, never past the padded tokens (PAD-3). Returns how many tokens fewer than staged there are.
__device__ int derive_query_start(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched,
                                  const Shared& s) {
  const int rows = p.view.padded_rows;
  const int tid = static_cast<int>(threadIdx.x);
  __shared__ int carry, staged_carry;
  if (tid == 0) {
    carry = staged_carry = 0;
    s.query_start[0] = s.staged_start[0] = 0;
  }
  for (int first = 0; first < rows; first += kThreads) {
    __syncthreads();
    const int b = first + tid;
    const StagedRow& staged = first == 0 || b >= rows ? fetched.row : slot.rows[b];
    const int end = carry + cta_scan(b < rows ? query_len_of(p, staged) : 0);
    int staged_end = end;
    if (p.view.samples_per_row > 1) staged_end = staged_carry + cta_scan(b < rows ? max(staged.query_len, 0) : 0);
    if (b < rows) {
      s.query_start[b + 1] = min(end, p.view.padded_tokens);
      s.staged_start[b + 1] = staged_end;
    }
    __syncthreads();
    if (tid == kThreads - 1) carry = end, staged_carry = staged_end;
  }
  __syncthreads();
  return staged_carry - carry;
}

__device__ void derive_rows(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched, const Shared& s,
                            StepError* error) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int b = tid; b < p.view.padded_rows; b += kThreads) {
    const StagedRow& staged = b == tid ? fetched.row : slot.rows[b];
    const int query_len = s.query_start[b + 1] - s.query_start[b];
    const int row = live_table_row(p, staged, query_len, error);
    s.table_row[b] = row;
    writable(p.view.query_start)[b + 1] = s.query_start[b + 1];
    derive_row(p, staged, b, row, query_len);
    if (row != kNullRow.value() && staged.history_len > 0) *s.any_history = 1;
  }
}

// The batch row that token t belongs to; -1: none.
__device__ int row_of_token(const Shared& s, int rows, int t) {
  if (t >= s.query_start[rows]) return -1;
  int low = 0, high = rows;  // query_start[low] <= t < query_start[high]
  while (high - low > 1) {
    const int mid = (low + high) / 2;
    if (s.query_start[mid] <= t) {
      low = mid;
    } else {
      high = mid;
    }
  }
  return low;
}

__device__ int32_t token_of(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched, const Shared& s,
                            int row, int b, int t) {
  const int i = t - s.query_start[b], index = min(s.staged_start[b] + i, p.view.padded_tokens - 1);
  return token_id(p, row, i, index == static_cast<int>(threadIdx.x) ? fetched.token : slot.tokens[index]);
}

__device__ TokenPlace place_of_token(const PrepareParams& p, const Shared& s, int t) {
  const int b = row_of_token(s, p.view.padded_rows, t);
  if (b < 0) return {};
  const int row = s.table_row[b], query_len = s.query_start[b + 1] - s.query_start[b];
  if (row == kNullRow.value()) return {b, row, query_len, 0, 0};
  const int num_computed = p.row_state[row].num_computed;
  return {b, row, query_len, num_computed + t - s.query_start[b], num_computed};
}

__device__ void derive_tokens(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched, const Shared& s) {
  const StepView& v = p.view;
  __shared__ AttentionCounts counts[kv::kMaxGroups];
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < v.num_groups) counts[tid] = {};
  for (int first = 0; first < v.padded_tokens; first += kThreads) {
    const int t = first + tid < v.padded_tokens ? first + tid : -1;
    TokenPlace place{};
    if (t >= 0) {
      place = place_of_token(p, s, t);
      const bool live = place.table_row != kNullRow.value();
      derive_token(p, t, live ? token_of(p, slot, fetched, s, place.table_row, place.batch_row, t) : 0, place);
    }
    for (int g = 0; g < v.num_groups; ++g) list_tokens(v, v.groups[g], t, place, counts[g].of_class);
  }
  __syncthreads();
  if (tid < v.num_groups) *v.groups[tid].attention.counts = counts[tid];
}

// The logits rows: of each live batch row its last num_logits tokens, without gaps. Returns how many.
__device__ int derive_logits(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched, const Shared& s) {
  const StepView& v = p.view;
  const int tid = static_cast<int>(threadIdx.x);
  __shared__ int carry;
  if (tid == 0) {
    carry = 0;
    writable(v.logits_start)[0] = 0;
  }
  for (int first = 0; first < v.padded_rows; first += kThreads) {
    __syncthreads();
    const int b = first + tid;
    int wanted = 0;
    if (b < v.padded_rows && s.table_row[b] != kNullRow.value()) {
      wanted =
          min(first == 0 ? fetched.row.num_logits : slot.rows[b].num_logits, s.query_start[b + 1] - s.query_start[b]);
    }
    const int end = carry + cta_scan(wanted);
    if (b < v.padded_rows) {
      writable(v.logits_start)[b + 1] = min(end, v.padded_logits);
      for (int i = wanted; i > 0; --i) {
        if (end - i < v.padded_logits) writable(v.logits_token)[end - i] = s.query_start[b + 1] - i;
      }
    }
    __syncthreads();
    if (tid == kThreads - 1) carry = end;
  }
  __syncthreads();
  const int num_logits = min(carry, v.padded_logits);
  for (int l = num_logits + tid; l < v.padded_logits; l += kThreads) writable(v.logits_token)[l] = -1;
  return num_logits;
}

// Rows that begin with a prefix hit bring its ids: a warp a row.
__device__ void copy_history(const PrepareParams& p, const StagedSlot& slot, const Shared& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int b = warp; b < p.view.padded_rows; b += kThreads / 32) {
    if (s.table_row[b] == kNullRow.value()) continue;
    const int32_t start = slot.rows[b].history_start, len = slot.rows[b].history_len;
    int32_t* row = p.history.row(s.table_row[b]);
    for (int i = lane; i < len; i += 32) row[i] = slot.history[start + i];
  }
}

// In the second build of the tests alone (base/mutation.h).
__device__ void set_mutations([[maybe_unused]] uint32_t mutations) {
#if defined(BZ_MUTATIONS)
  if (threadIdx.x == 0) g_device_mutations = mutations;
  __syncthreads();
#endif
}

__global__ void __launch_bounds__(kThreads)
    prepare_kernel(const __grid_constant__ PrepareParams p, uint32_t mutations) {
  auto* memory = dynamic_shared<int32_t>();
  const StepView& v = p.view;
  __shared__ StagedHeader header;
  __shared__ StepError error;
  __shared__ int any_history;
  const int extent = v.padded_rows + 1;
  const Shared s{memory, memory + extent, memory + 2 * extent, &any_history};
  const int tid = static_cast<int>(threadIdx.x);
  wait_for_previous();  // and lets nobody start early: launch.h
  set_mutations(mutations);
  const uint64_t count = *p.step_count + 1;
  const StagedSlot slot = p.ring[(count - 1) % PrepareParams::kRingSlots];
  Fetched fetched{};
  if (tid < v.padded_rows) fetched.row = slot.rows[tid];
  if (tid < v.padded_tokens) fetched.token = slot.tokens[tid];
  if (tid == 0) {
    any_history = 0;
    header = *slot.header;
    const bool expected = header.sequence == count || mutated(Mutation::kNoSequenceCheck);
    error = expected ? StepError::kNone : StepError::kSequenceGap;
  }
  __syncthreads();
  const bool gap = error == StepError::kSequenceGap;
  if (gap) {
    null_every_row(p);
  } else {
    apply_changes(p, slot, header.num_changes);
  }
  __syncthreads();
  const int missing = derive_query_start(p, slot, fetched, s);
  if (tid == 0) writable(v.query_start)[0] = 0;
  derive_rows(p, slot, fetched, s, &error);
  __syncthreads();
  derive_tokens(p, slot, fetched, s);
  if (any_history != 0) copy_history(p, slot, s);
  const int num_logits = derive_logits(p, slot, fetched, s);
  if (tid == 0) {
    *writable(v.num_valid_rows) = kv::NumValidRows(gap ? 0 : header.num_valid_rows);
    *writable(v.num_valid_tokens) = kv::NumValidTokens(gap ? 0 : header.num_valid_tokens - missing);
    *writable(v.num_valid_logits) = NumValidLogits(num_logits);
    *p.error_state = {count, error, gap ? 0 : header.num_valid_rows};
    *p.step_count = count;  // every thread has read it: barriers lie between
  }
}

}  // namespace

void prepare(device::Stream& stream, const PrepareParams& p) {
  check(p);
  const size_t shared = sizeof(int32_t) * 3 * (static_cast<size_t>(p.view.padded_rows) + 1);
  launch(stream, "prepare", prepare_kernel, {.grid = 1, .cta = kThreads, .shared_bytes = shared, .overlap = false}, p,
         mutations_in_force());
}

}  // namespace bz::ops::cuda
