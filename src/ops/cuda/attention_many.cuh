// Attention of steps with more tokens than a GPU has room for at once: as many ctas as there is room for walk the lists
// that prepare made (ops/attention_class.h), so that padding and nulled rows have no ctas.
//
// A long token's unit of heads is a cta's: its warps share the positions. A short one's is a single warp's, where there
// are enough of them for all warps. The first piece of work of each is known, further ones are claimed from a counter:
// rows differ in length. Who does what changes no bit.
#pragma once

#include "ops/cuda/attention_dead.cuh"
#include "ops/cuda/attention_unit.cuh"

namespace bz::ops::cuda {

// What sizes alone decide.
struct ManyShare {
  bool with_prompts;
  int units;  // of a token
};

// The pieces of work of a step: a unit of a token each.
class AttentionWork {
 public:
  __device__ AttentionWork(const AttentionParams& p, const ManyShare& share, int head_dim)
      : tokens_(p.view.groups[p.group].attention.tokens), stride_(p.view.padded_tokens), units_(share.units) {
    const int32_t* n = p.view.groups[p.group].attention.counts->of_class;
    prompts_ = share.with_prompts ? n[static_cast<int>(AttentionClass::kPrompt)] : 0;
    long_ = n[static_cast<int>(AttentionClass::kLong)];
    short_ = n[static_cast<int>(AttentionClass::kShort)];
    num_dead = n[static_cast<int>(AttentionClass::kDead)];
    // Fewer warps alone do not keep the memory busy: 3.2 a cta with heads of 128, half as many with heads of 64, as
    // measured; not less with smaller ones.
    lone_ = 40 * short_ * units_ >= max(head_dim, 64) * static_cast<int>(gridDim.x);
  }
  int num_dead;
  // Of ctas, and of single warps.
  __device__ int num_shared() const { return (prompts_ + long_ + (lone_ ? 0 : short_)) * units_; }
  __device__ int num_lone() const { return lone_ ? short_ * units_ : 0; }

  __device__ AttentionToken shared_token(int piece) const {
    int i = piece / units_;
    if (i < prompts_) return token(AttentionClass::kPrompt, i);
    i -= prompts_;
    return i < long_ ? token(AttentionClass::kLong, i) : token(AttentionClass::kShort, i - long_);
  }
  __device__ AttentionToken lone_token(int piece) const { return token(AttentionClass::kShort, piece / units_); }
  __device__ int unit(int piece) const { return piece % units_; }

 private:
  __device__ const AttentionToken* at(AttentionClass c, int i) const {
    return tokens_ + static_cast<int64_t>(c) * stride_ + i;
  }
  __device__ AttentionToken token(AttentionClass c, int i) const { return *at(c, i); }

  const AttentionToken* tokens_;
  const int stride_, units_;
  int prompts_, long_, short_;
  bool lone_;
};

// Further pieces, for claimants that each ask until they are told there is none. num_first: pieces that are nobody's
// claim. After the last answer the counter is zero again.
struct Claims {
  uint32_t* counter;
  int num_pieces, num_first, num_claimants;
  // REQUIRES: what came before this kernel has finished: it may be using the counter. One thread.
  __device__ int next() const {
    if (num_pieces <= num_first) return num_pieces;
    const int answers = num_pieces - num_first + num_claimants;
    return num_first + static_cast<int>(atomicInc(counter, static_cast<uint32_t>(answers - 1)));
  }
};

// Grid: ctas. Shared: kAttentionWarps * Tile::kWarpBytes.
template <class Tile>
__global__ void __launch_bounds__(kAttentionWarps* kWarp, 2)  // 2: no fewer registers than that allows
    attention_many_kernel(const __grid_constant__ AttentionParams p, const ManyShare share) {
  using Unit = AttentionUnit<Tile>;
  auto* memory = dynamic_shared<std::byte>();
  __shared__ int claimed;
  const AttentionWork work(p, share, Tile::kHd);
  AttentionCounts& counts = *p.view.groups[p.group].attention.counts;
  const int cta = static_cast<int>(blockIdx.x), ctas = static_cast<int>(gridDim.x);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int sharing = min(ctas, work.num_shared());  // ctas that begin with a shared piece
  const Claims shared_claims{&counts.shared_claims, work.num_shared(), ctas, ctas};
  const Claims lone_claims{&counts.lone_claims, work.num_lone(), (ctas - sharing) * kAttentionWarps,
                           ctas * kAttentionWarps};

  int piece = cta, next = 0;
  const int first_lone = (cta - sharing) * kAttentionWarps + warp;  // if no shared piece comes first
  AttentionToken token{};
  if (piece < work.num_shared()) {
    token = work.shared_token(piece);
  } else if (first_lone < work.num_lone()) {
    token = work.lone_token(first_lone);
  }
  // While that is on its way.
  DeadOutputs dead(p, work.num_dead, warp * ctas + cta, kAttentionWarps * ctas);
  while (piece < work.num_shared()) {
    const Unit unit(p, token.token, work.unit(piece));
    unit.attend(token.sees, memory, warp, kAttentionWarps, [&] {
      if (threadIdx.x == 0) next = shared_claims.next();
    });
    dead.clear_some();
    if (threadIdx.x == 0) claimed = next;
    __syncthreads();
    piece = claimed;
    if (piece < work.num_shared()) token = work.shared_token(piece);  // on its way while outputs are written
    merge_in_cta<typename Unit::Partial>(memory, Tile::kWarpBytes, unit.out, unit.policy(), unit.num_heads);
    __syncthreads();
  }

  piece = first_lone;
  if (cta < sharing) {
    piece = __shfl_sync(0xffffffffu, lane == 0 ? lone_claims.next() : 0, 0);
    if (piece < work.num_lone()) token = work.lone_token(piece);
  }
  while (piece < work.num_lone()) {
    const Unit unit(p, token.token, work.unit(piece));
    unit.attend(token.sees, memory, 0, 1, [&] {
      if (lane == 0) next = lone_claims.next();
    });
    dead.clear_some();
    piece = __shfl_sync(0xffffffffu, next, 0);
    if (piece < work.num_lone()) token = work.lone_token(piece);
    unit.store(memory);
  }
  wait_for_previous();  // of a warp without a piece
  let_next_start();
  dead.finish();
}

}  // namespace bz::ops::cuda
