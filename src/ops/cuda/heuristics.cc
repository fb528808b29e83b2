// Which kernel, which grid: pure functions of shapes.
#include <algorithm>

#include "ops/cuda/linear.h"

namespace bz::ops::cuda {
namespace {

constexpr int32_t kPairsPerCta = 4;               // one a warp (matvec.cuh)
constexpr int32_t kCtasPerSm = 8;                 // more pairs than this many ctas hold are walked in a loop
constexpr int64_t kMaxSharedBytes = 160 * 1024;   // of x

}  // namespace

MatvecConfig choose_matvec(int32_t tokens, int32_t k, int32_t num_pairs, int32_t num_sms) {
  MatvecConfig c;
  while (c.tokens_per_cta < 8 && c.tokens_per_cta < tokens &&
         int64_t{c.tokens_per_cta} * 2 * k * 4 <= kMaxSharedBytes) {
    c.tokens_per_cta *= 2;
  }
  c.num_ctas = std::min((num_pairs + kPairsPerCta - 1) / kPairsPerCta, num_sms * kCtasPerSm);
  return c;
}

bool prefer_mma(DType, int32_t) { return false; }

}  // namespace bz::ops::cuda
