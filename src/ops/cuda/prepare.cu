// The first node of every step (docs/architecture.md, one step). One cta: it reads the host-mapped staging slot in
// place (no copy node), counts the step, applies the table changes, and derives the step view over its whole padded
// extent through kv/slot.h and nothing else (PAD-2, PAD-4). The same as ops/cpu/prepare.cc, in parallel.
#include "base/mutation.h"
#include "ops/cuda/checks.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/prepare_changes.cuh"
#include "ops/cuda/prepare_lists.cuh"

namespace bz::ops::cuda {
namespace {

using kv::RowId;

constexpr int kThreads = kPrepareThreads;

// Writes through the const pointers that everyone else reads.
template <class T>
__device__ T* writable(const T* p) {
  return const_cast<T*>(p);
}

// How many tokens the row computes: it ends where its drafts do.
__device__ int query_len_of(const PrepareParams& p, const StagedRow& staged) {
  if (staged.sample <= 1 || staged.row_index >= p.num_table_rows) return max(staged.query_len, 0);
  return min(staged.query_len, 1 + p.drafts[staged.row_index].count);
}

// The table row a batch row may use: the null row unless its staged row is live and within what the plan reserved. At a
// gap every row is empty by now.
__device__ int live_table_row(const PrepareParams& p, const StagedRow& staged, int query_len, int* error) {
  const int row = staged.row_index;
  if (row <= kNullRow.value() || row >= p.num_table_rows || staged.query_len <= 0 || is_empty(p, row)) {
    return kNullRow.value();
  }
  if (p.row_state[row].num_computed + query_len > staged.max_seq_len && !mutated(Mutation::kNoReserveCheck)) {
    *error = static_cast<int>(StepError::kPastReserved);
    return kNullRow.value();
  }
  return row;
}

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

__device__ void derive_row(const PrepareParams& p, const StagedRow& staged, const Shared& s, int b, int* error) {
  const StepView& v = p.view;
  const int query_len = s.query_start[b + 1] - s.query_start[b];
  const int row = live_table_row(p, staged, query_len, error);
  const bool live = row != kNullRow.value();
  s.table_row[b] = row;
  writable(v.row_index)[b] = row;
  const int num_computed = live ? p.row_state[row].num_computed : 0;
  writable(v.seq_len)[b] = live ? num_computed + query_len : 0;
  writable(v.query_start)[b + 1] = s.query_start[b + 1];
  p.sampling[b] = staged.sampling;
  p.sample_row[b] = live ? min(staged.sample, query_len) : 0;
  p.next_token[b] = staged.next_token;
  if (live && staged.history_len > 0) *s.any_history = 1;
  for (int g = 0; g < v.num_groups; ++g) {
    const GroupStep& group = v.groups[g];
    group.first_visible[b] = kv::first_visible(group.view, num_computed);
    for (int i = 0; i < v.states_per_row; ++i)
      group.states[b * v.states_per_row + i] = kv::state_of(group.view, RowId(row), i);
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
  const int32_t staged = index == static_cast<int>(threadIdx.x) ? fetched.token : slot.tokens[index];
  if (staged == kTokenFromRowState) return p.row_state[row].last_token;
  return staged == kTokenFromDraft ? p.drafts[row].tokens[i - 1] : staged;
}

__device__ TokenPlace derive_token(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched,
                                   const Shared& s, int t) {
  const StepView& v = p.view;
  const int b = row_of_token(s, v.padded_rows, t);
  const int row = b >= 0 ? s.table_row[b] : kNullRow.value();
  const bool live = row != kNullRow.value();
  int32_t token = 0, position = 0, num_computed = 0, query_len = 0, seq_end = 1;
  if (live) {
    const RowState& state = p.row_state[row];
    token = token_of(p, slot, fetched, s, row, b, t);
    num_computed = state.num_computed;
    position = num_computed + t - s.query_start[b];
    query_len = s.query_start[b + 1] - s.query_start[b];
    seq_end = num_computed + query_len;
  }
  writable(v.token_ids)[t] = token;
  writable(v.positions)[t] = position;
  writable(v.token_row)[t] = live ? b : -1;
  if (live) p.history.set(row, position, token);
  for (int g = 0; g < v.num_groups; ++g)
    if (live || !mutated(Mutation::kZeroFilledSlots))
      v.groups[g].slots[t] = kv::write_slot(v.groups[g].view, RowId(row), position, seq_end);
  return {max(b, 0), row, query_len, position, num_computed};
}

__device__ void derive_tokens(const PrepareParams& p, const StagedSlot& slot, const Fetched& fetched, const Shared& s) {
  const StepView& v = p.view;
  __shared__ AttentionCounts counts[kv::kMaxGroups];
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < v.num_groups) counts[tid] = {};
  for (int first = 0; first < v.padded_tokens; first += kThreads) {
    const int t = first + tid < v.padded_tokens ? first + tid : -1;
    TokenPlace place{};
    if (t >= 0) place = derive_token(p, slot, fetched, s, t);
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
  extern __shared__ int32_t memory[];
  const StepView& v = p.view;
  __shared__ StagedHeader header;
  __shared__ int error, any_history;
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
    error = static_cast<int>(expected ? StepError::kNone : StepError::kSequenceGap);
  }
  __syncthreads();
  const bool gap = error == static_cast<int>(StepError::kSequenceGap);
  if (gap) {
    null_every_row(p);
  } else {
    apply_changes(p, slot, header.num_changes);
  }
  __syncthreads();
  const int missing = derive_query_start(p, slot, fetched, s);
  if (tid == 0) writable(v.query_start)[0] = 0;
  for (int b = tid; b < v.padded_rows; b += kThreads) {
    derive_row(p, b == tid ? fetched.row : slot.rows[b], s, b, &error);
  }
  __syncthreads();
  derive_tokens(p, slot, fetched, s);
  if (any_history != 0) copy_history(p, slot, s);
  const int num_logits = derive_logits(p, slot, fetched, s);
  if (tid == 0) {
    *writable(v.num_valid_rows) = kv::NumValidRows(gap ? 0 : header.num_valid_rows);
    *writable(v.num_valid_tokens) = kv::NumValidTokens(gap ? 0 : header.num_valid_tokens - missing);
    *writable(v.num_valid_logits) = NumValidLogits(num_logits);
    *p.error_state = {count, static_cast<StepError>(error), gap ? 0 : header.num_valid_rows};
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
