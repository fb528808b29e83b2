#include "ops/cpu/kernels.h"

#if defined(BZ_OPS_X86)
#include <immintrin.h>

#include <algorithm>

#include "base/math.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/matmul_order.h"

BZ_ISA_AVX512_BEGIN
// clang-format off: these belong to the instruction set
#include "ops/cpu/vec_avx512.h"
#include "ops/cpu/vec.h"
#include "ops/cpu/matmul_quantize.h"
#include "ops/cpu/weight_blocks.h"
#include "ops/cpu/matmul_tile.h"
#include "ops/cpu/matmul_float.h"
#include "ops/cpu/matmul_kernel.h"
// clang-format on

namespace bz::ops::cpu::avx512 {

void matmul(const MatmulParams& p, Worker& worker) { Matmul<Avx512>::run(p, worker); }

size_t matmul_scratch_bytes(int32_t tokens, int32_t k) {
  return static_cast<size_t>(tokens) * static_cast<size_t>(ceil_div(k, kBlock)) * sizeof(ActBlock);
}

}  // namespace bz::ops::cpu::avx512
BZ_ISA_END
#endif
