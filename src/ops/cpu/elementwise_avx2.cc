#include "ops/cpu/kernels.h"

#if defined(BZ_OPS_X86)
#include <immintrin.h>

#include <algorithm>

#include "ops/cpu/isa.h"
#include "ops/cpu/kv_element.h"
#include "ops/cpu/philox.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/sample_rows.h"

BZ_ISA_AVX2_BEGIN
// clang-format off: these belong to the instruction set
#include "ops/cpu/vec_avx2.h"
#include "ops/cpu/vec.h"
#include "ops/cpu/elementwise_kernel.h"
#include "ops/cpu/sample_kernel.h"
// clang-format on

namespace bz::ops::cpu::avx2 {

void embed(const EmbedParams& p, Worker& worker) { reference::embed(p, worker); }

void rope_table(const RopeTableParams& p, Worker& worker) { reference::rope_table(p, worker); }

void gather_rows(const GatherRowsParams& p, Worker& worker) { reference::gather_rows(p, worker); }

void rms_norm(const RmsNormParams& p, Worker& worker) {
  for_each_row(worker, p.out, p.num_valid.get(), [&](int64_t t) {
    rms_norm_row<Avx2>(p.x.row<float>(t), p.weight, p.out.row<float>(t), p.x.cols, p.eps);
  });
}

void silu_mul(const SiluMulParams& p, Worker& worker) {
  for_each_row(worker, p.out, p.num_valid.get(), [&](int64_t t) {
    silu_mul_row<Avx2>(p.gate.row<float>(t), p.up.row<float>(t), p.out.row<float>(t), p.out.cols);
  });
}

void rope_store(const RopeStoreParams& p, Worker& worker) {
  const int32_t num_valid = p.num_valid.get();
  worker.parallel_for(p.q.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) rope_store_token<Avx2>(p, t, t < num_valid);
  });
}

void sample_greedy(const SampleParams& p, Worker& worker) { sample_rows<Avx2>(p, worker, true); }

void sample_random(const SampleParams& p, Worker& worker) { sample_rows<Avx2>(p, worker, false); }

size_t sample_scratch_bytes(int32_t, int32_t) { return 0; }

}  // namespace bz::ops::cpu::avx2
BZ_ISA_END
#endif
