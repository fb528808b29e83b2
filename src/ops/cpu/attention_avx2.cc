#include "ops/cpu/kernels.h"

#if defined(BZ_OPS_X86)
#include <immintrin.h>

#include <algorithm>

#include "base/math.h"
#include "ops/cpu/attention_order.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/kv_element.h"

BZ_ISA_AVX2_BEGIN
// clang-format off: these belong to the instruction set
#include "ops/cpu/vec_avx2.h"
#include "ops/cpu/vec.h"
#include "ops/cpu/attention_tile.h"
#include "ops/cpu/attention_kernel.h"
// clang-format on

namespace bz::ops::cpu::avx2 {

void attention(const AttentionParams& p, Worker& worker) { Attention<Avx2>::run(p, worker); }

size_t attention_scratch_bytes(int32_t num_heads, int32_t head_dim, int32_t max_position) {
  return Attention<Avx2>::scratch_bytes(num_heads, head_dim, max_position);
}

}  // namespace bz::ops::cpu::avx2
BZ_ISA_END
#endif
