// Paged attention of rows with many tokens in a step: prompts, whole or in chunks. Grouped-query, on the tensor cores,
// for caches of bf16 and f16.
//
// A cta has a tile of consecutive tokens of the batch and one KV head: up to kQueryRows query rows, a row being one
// query head of one token. It walks the positions that its tokens see in pieces (attention_pieces.cuh). A team of warps
// reads a piece from shared memory, the next one on its way, and each warp keeps a running softmax of 16 query rows
// (attention_prefill_warp.cuh). Two teams share the pieces of small heads, the even and the odd ones, so that a lone
// prompt's longest walk is half as long; what they saw is merged at the end.
//
// Pieces lie at absolute positions, and one that a query does not see adds exact zeros: so a token's bits depend
// neither on the tile it falls in nor on how its prompt was cut. They are not those of attention_few.cuh, which
// splits a row over warps: a batch-invariant table (PAD-9b) has that kernel alone.
//
// What no token of the tile's row sees is not read (PAD-7). Rows with few tokens and tokens of no row are left to
// attention_many.cuh.
#pragma once

#include "ops/cuda/attention.h"
#include "ops/cuda/attention_prefill_warp.cuh"
#include "ops/cuda/token_view.cuh"

namespace bz::ops::cuda {

inline constexpr int kQueryRows = 16 * kTeamWarps;

// A token of the tile. A token of no row, or of a row with few tokens, sees nothing here.
struct PrefillToken {
  int row = -1;  // batch row
  int begin = 0, end = 0;
};

// A cta's shared memory.
template <int HD>
struct PrefillMemory {
  TeamMemory<HD> teams[kTeams<HD>];
  PrefillToken tokens[kQueryRows];
};

// Query row k of this lane, among n tokens of a row: token i of them, for head `head`.
struct QueryRow {
  int i, head;
  __device__ QueryRow(const AttentionParams& p, int kv_head, int k) {
    const int heads_per_kv = p.num_heads / p.layer.num_kv_heads;
    const int row = team_thread() / kWarp * 16 + team_thread() % kWarp / 4 + 8 * k;
    i = row / heads_per_kv;
    head = kv_head * heads_per_kv + row % heads_per_kv;
  }
};

// What team 1 saw goes to team 0, through the memory of team 1's pieces.
template <DType T, int HD>
__device__ void merge_teams(PrefillMemory<HD>& memory, PrefillWarp<T, HD>& warp) {
  constexpr int kWarpFloats = PrefillWarp<T, HD>::kShared * kWarp;
  static_assert(sizeof(TeamMemory<HD>::piece) >= sizeof(float) * kTeamWarps * kWarpFloats);
  float* shared = reinterpret_cast<float*>(memory.teams[1].piece) + team_thread() / kWarp * kWarpFloats;
  copies_wait<0>();  // of a team without a piece
  __syncthreads();
  if (team() == 1) warp.leave(shared);
  __syncthreads();
  if (team() == 0) warp.take(shared);
}

// Tokens [first, first + n) of the tile, of one row.
template <DType T, int HD>
__device__ void attend_segment(const AttentionParams& p, PrefillMemory<HD>& memory, int tile_token, int first, int n,
                               int kv_head) {
  PrefillWarp<T, HD> warp;
  const float* q[2] = {};
  int last_piece = -1;  // of this warp
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const QueryRow r(p, kv_head, k);
    const PrefillToken token = r.i < n ? memory.tokens[first + r.i] : PrefillToken{};
    warp.begin[k] = token.begin, warp.end[k] = token.end;
    if (r.i < n) q[k] = p.q.row<const float>(tile_token + first + r.i) + r.head * HD;
    last_piece = max(last_piece, (token.end + kPiece - 1) / kPiece - 1);
  }
  last_piece = __reduce_max_sync(0xffffffffu, last_piece);
  warp.load_queries(q, p.scale * kLog2e);

  const PrefillToken head_token = memory.tokens[first], tail_token = memory.tokens[first + n - 1];
  const kv::RowId table_row(p.view.row_index[head_token.row]);
  const int head_offset = kv_head * HD * 2;
  TeamMemory<HD>& mine = memory.teams[team()];
  const PieceReader<HD> reader{p, mine, table_row, head_token.begin, tail_token.end, head_offset};
  const int first_piece = head_token.begin / kPiece, end = (tail_token.end + kPiece - 1) / kPiece;
  const int begin = first_piece + (first_piece + team()) % kTeams<HD>;  // whose a piece is depends on the piece alone
  reader.publish(begin, reader.look_up(begin));
  team_sync();
  reader.fetch(begin);
  int64_t ahead = reader.look_up(begin + kTeams<HD>);
#pragma unroll 1
  for (int piece = begin; piece < end; piece += kTeams<HD>) {
    reader.publish(piece + kTeams<HD>, ahead);
    copies_wait<0>();
    team_sync();  // the piece is there for all, and nobody still reads the one before it
    if (piece + kTeams<HD> < end) reader.fetch(piece + kTeams<HD>);
    ahead = reader.look_up(piece + 2 * kTeams<HD>);
    if (piece > last_piece) continue;
    const int place = PieceReader<HD>::place_of(piece);
    const auto* planes = mine.piece[place % 2];
    const uint32_t* counts = mine.counts[place % kAhead];
    warp.attend(static_cast<uint32_t>(__cvta_generic_to_shared(planes[0])),
                static_cast<uint32_t>(__cvta_generic_to_shared(planes[1])), piece * kPiece,
                counts[0] | static_cast<uint64_t>(counts[1]) << 32);
  }
  if constexpr (kTeams<HD> == 2) merge_teams(memory, warp);
  if (team() == 0) {
    float* out[2] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const QueryRow r(p, kv_head, k);
      if (r.i < n) out[k] = p.out.row<float>(tile_token + first + r.i) + r.head * HD;
    }
    warp.store(out);
  }
  copies_wait<0>();  // of a row that sees nothing
  __syncthreads();   // before the next segment's addresses and pieces
}

// Grid: (KV heads, tiles of kQueryRows / heads_per_kv tokens, the last first: they have most to do).
template <DType T, int HD>
__global__ void __launch_bounds__(kPrefillThreads<HD>, 2)
    attention_prefill_kernel(const __grid_constant__ AttentionParams p) {
  auto& memory = *dynamic_shared<PrefillMemory<HD>>();
  const int heads_per_kv = p.num_heads / p.layer.num_kv_heads, tile_size = kQueryRows / heads_per_kv;
  const int kv_head = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x);
  const int tile_token = static_cast<int>(gridDim.y - 1 - blockIdx.y) * tile_size;
  const int num_tokens = min(tile_size, p.q.rows - tile_token);
  if (tid < num_tokens) {
    const TokenView view(p.view, p.group, tile_token + tid);
    PrefillToken token;
    if (view.live && view.queries >= kPromptQueries) token = {view.row, view.sees.begin, view.sees.end};
    memory.tokens[tid] = token;
  }
  wait_for_previous();
  let_next_start();
  __syncthreads();
  for (int first = 0, n = 0; first < num_tokens; first += n) {
    const int row = memory.tokens[first].row;
    for (n = 1; first + n < num_tokens && memory.tokens[first + n].row == row; ++n) {
    }
    if (row >= 0) attend_segment<T, HD>(p, memory, tile_token, first, n, kv_head);
  }
}

template <DType T, int HD>
void launch_attention_prefill_as(device::Stream& stream, const AttentionParams& p) {
  const int tile_size = kQueryRows / (p.num_heads / p.layer.num_kv_heads);
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(p.layer.num_kv_heads),
                static_cast<unsigned>((p.q.rows + tile_size - 1) / tile_size)};
  shape.cta = kPrefillThreads<HD>;
  shape.shared_bytes = sizeof(PrefillMemory<HD>);
  launch(stream, "attention_prefill", attention_prefill_kernel<T, HD>, shape, p);
}

template <DType T>
void launch_attention_prefill(device::Stream& stream, const AttentionParams& p) {
  if (p.layer.head_dim == 64) return launch_attention_prefill_as<T, 64>(stream, p);
  return launch_attention_prefill_as<T, 128>(stream, p);
}

}  // namespace bz::ops::cuda
