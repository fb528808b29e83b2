// Which kernel, which grid: pure functions of shapes and of the GPU.
#include <algorithm>

#include "ops/cuda/attention.h"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {
namespace {

constexpr int32_t kWarpsPerSm = 16;               // that matvec.cuh's registers allow; more pairs are walked in a loop
constexpr int32_t kMatvecTokens = 4;              // more: the tensor cores
constexpr int32_t kPairsPerTile = 64;             // of a cta whose warps do not share K (matmul_mma.cuh)
constexpr int64_t kPlainSharedBytes = 96 * 1024;  // that a cta has on every GPU since sm_80
constexpr int64_t kSpareSharedBytes = 8 * 1024;   // of a multiprocessor: beside the x of its ctas

// Tokens that share a walk over the weights: as many as their x has room for.
int32_t tokens_at_once(int32_t tokens, int32_t k, int64_t shared_bytes) {
  int32_t n = 1;
  while (n < kMatvecTokens && n < tokens && int64_t{n} * 2 * k * 4 <= shared_bytes) n *= 2;
  return n;
}

}  // namespace

MatvecConfig choose_matvec(int32_t tokens, int32_t k, int32_t num_pairs, const device::cuda::GpuLimits& gpu) {
  MatvecConfig c;
  c.tokens_per_cta = tokens_at_once(tokens, k, kPlainSharedBytes);
  // All ctas at once, so that none comes when the others have gone: as many as registers and shared memory hold.
  const int64_t x_bytes = int64_t{c.tokens_per_cta} * k * 4, room = gpu.sm_shared_bytes - kSpareSharedBytes;
  if (c.tokens_per_cta == 1 && x_bytes * (kWarpsPerSm / 4) > room) c.warps = 8;
  const int64_t by_memory = std::max<int64_t>(room / x_bytes, 1);
  const auto ctas_per_sm = static_cast<int32_t>(std::min<int64_t>(by_memory, kWarpsPerSm / c.warps));
  c.num_ctas = std::min((num_pairs + c.warps - 1) / c.warps, gpu.num_sms * ctas_per_sm);
  return c;
}

StreamConfig choose_stream(const LinearParams& p, DType dtype, int32_t num_sms) {
  // One cta on each multiprocessor: with half of its shared memory or less, the first ones that are free would get two,
  // and others none.
  constexpr int64_t kAll = 226 * 1024, kHalf = 114 * 1024;
  constexpr int64_t kBesideAttention = 120 * 1024;  // which comes after q, k and v, and starts while they are computed
  constexpr int64_t kMaxX = 160 * 1024;             // leaves room for a stage
  constexpr int32_t kMostStages = 16;
  constexpr int64_t kBarrierBytes = 8;
  StreamConfig c;
  if (row_bytes(dtype, p.k) % 16 != 0) return c;
  c.tokens_per_cta = tokens_at_once(p.tokens, p.k, kMaxX);
  if (p.tokens == 1 && p.num_pairs < 8 * num_sms) c.warps = 4;
  c.num_ctas = std::min((p.num_pairs + c.warps - 1) / c.warps, num_sms);
  const int64_t x_bytes = int64_t{c.tokens_per_cta} * p.k * 4;
  const int64_t stage_bytes = c.warps * (2 * row_bytes(dtype, kChunkElems) + kBarrierBytes);
  const auto stages_in = [&](int64_t bytes) {
    return static_cast<int32_t>(std::clamp<int64_t>((bytes - x_bytes) / stage_bytes, 0, kMostStages));
  };
  constexpr int32_t kEnoughStages = 3;
  if (p.epilogue == Epilogue::kRopeStore) c.num_stages = stages_in(kBesideAttention);
  if (c.num_stages < kEnoughStages) c.num_stages = stages_in(kAll);
  c.shared_bytes = std::max(x_bytes + c.num_stages * stage_bytes, kHalf);
  return c;
}

bool prefer_mma(int32_t tokens, int32_t k, int64_t shared_bytes, bool invariant) {
  constexpr int64_t kBesideX = 256;  // matvec.cuh's static part
  return invariant || tokens > kMatvecTokens || int64_t{4} * k > shared_bytes - kBesideX;
}

bool prefer_split(DType weight, int64_t elements, int32_t tokens, bool invariant) {
  constexpr int32_t kMinBf16 = 64;              // its weights are read where they lie
  constexpr int64_t kManyElements = 4'000'000;  // of bf16: more kernels are little beside them
  constexpr int32_t kMinManyBf16 = 4;
  constexpr int32_t kMinOthers = 256;  // theirs are written out anew for each product
  if (invariant) return false;
  if (weight != DType::kBF16) return tokens >= kMinOthers;
  return tokens >= (elements >= kManyElements ? kMinManyBf16 : kMinBf16);
}

MmaConfig choose_mma(int32_t tokens, int32_t num_pairs, int32_t num_sms, bool invariant) {
  MmaConfig c;
  c.tokens_per_cta = tokens > 64 ? 32 : 16;
  const int64_t token_tiles = (tokens + c.tokens_per_cta - 1) / c.tokens_per_cta;
  const int64_t ctas_unsplit = token_tiles * ((num_pairs + kPairsPerTile - 1) / kPairsPerTile);
  c.k_split = invariant || ctas_unsplit < num_sms ? 4 : 1;
  return c;
}

int choose_attention_cluster(int32_t tokens, int32_t num_kv_heads, int64_t max_position, int32_t num_sms,
                             bool invariant) {
  constexpr int kMostCtas = 8;              // clusters of 16 do not find room everywhere: slower from 4k positions on
  constexpr int kMostInvariant = 4;         // between one row of 32k positions and 256 rows
  constexpr int64_t kPositionsPerCta = 64;  // fewer than a run for every warp would idle
  const auto fits = [&](int cluster) {      // one cta a multiprocessor is enough to read at full speed
    return invariant ? cluster <= kMostInvariant : int64_t{tokens} * num_kv_heads * cluster <= num_sms;
  };
  int cluster = 1;
  while (cluster < kMostCtas && cluster * kPositionsPerCta < max_position && fits(cluster * 2)) cluster *= 2;
  return cluster;
}

AttentionPlan plan_attention(int32_t tokens, int32_t rows, int32_t num_kv_heads, int64_t max_position,
                             const device::cuda::GpuLimits& gpu, bool can_prefill, bool invariant) {
  // Below either, the second kernel costs more than it saves: a decode batch of 256 rows with some short prompts in it.
  constexpr int32_t kMinTokens = 2 * kPromptQueries, kMinTokensPerRow = 4;
  constexpr int64_t kCtaBytes = 98 * 1024;  // of shared memory, the system's part included
  const auto ctas_per_sm = static_cast<int32_t>(std::clamp<int64_t>(gpu.sm_shared_bytes / kCtaBytes, 1, 2));
  const int32_t ctas_at_once = ctas_per_sm * gpu.num_sms;
  AttentionPlan plan;
  plan.prefill = can_prefill && !invariant && tokens >= kMinTokensPerRow * rows && tokens >= kMinTokens;
  if (plan.prefill || (!invariant && int64_t{tokens} * num_kv_heads > ctas_at_once)) {
    plan.many_ctas = ctas_at_once;
  } else {
    plan.cluster = choose_attention_cluster(tokens, num_kv_heads, max_position, gpu.num_sms, invariant);
    // One row is fastest with 64 positions a cta, 256 rows with 256: where there is no choice it leans to the latter.
    if (invariant) plan.positions_log2 = 8;
  }
  return plan;
}

}  // namespace bz::ops::cuda
