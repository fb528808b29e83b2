#include "ops/cpu/cpu_ops.h"

#include "device/cpu/cpu_stream.h"
#include "ops/cpu/dequantize.h"
#include "ops/cpu/kernels.h"
#include "ops/shape_checks.h"

namespace bz::ops::cpu {
namespace {

// The launch wrapper of every op: checks shapes, then enqueues.
template <const char* Name, class Params, void (*Kernel)(const Params&, Worker&)>
void launch(device::Stream& stream, const Params& params) {
  check_shapes(params);
  device::cpu::enqueue(stream, Name, params, Kernel);
}

constexpr char kEmbed[] = "embed", kRmsNorm[] = "rms_norm", kMatmul[] = "matmul", kRopeTable[] = "rope_table",
               kRopeStore[] = "rope_store", kAttention[] = "attention", kSiluMul[] = "silu_mul",
               kGatherRows[] = "gather_rows", kSampleGreedy[] = "sample_greedy", kSampleRandom[] = "sample_random",
               kAdjustLogits[] = "adjust_logits", kLogprobs[] = "logprobs", kCopyBlocks[] = "copy_blocks",
               kDraft[] = "draft", kZeroRows[] = "zero_rows";

#define BZ_TABLE_(name, ns)                                                                                        \
  OpTable {                                                                                                        \
    .isa = name, .copy_blocks = launch<kCopyBlocks, CopyBlocksParams, reference::copy_blocks>, .prepare = prepare, \
    .embed = launch<kEmbed, EmbedParams, ns::embed>, .rms_norm = launch<kRmsNorm, RmsNormParams, ns::rms_norm>,    \
    .matmul = launch<kMatmul, MatmulParams, ns::matmul>,                                                           \
    .rope_table = launch<kRopeTable, RopeTableParams, ns::rope_table>,                                             \
    .rope_store = launch<kRopeStore, RopeStoreParams, ns::rope_store>,                                             \
    .attention = launch<kAttention, AttentionParams, ns::attention>,                                               \
    .silu_mul = launch<kSiluMul, SiluMulParams, ns::silu_mul>,                                                     \
    .gather_rows = launch<kGatherRows, GatherRowsParams, ns::gather_rows>,                                         \
    .sample_greedy = launch<kSampleGreedy, SampleParams, ns::sample_greedy>,                                       \
    .sample_random = launch<kSampleRandom, SampleParams, ns::sample_random>,                                       \
    .adjust_logits = launch<kAdjustLogits, AdjustLogitsParams, reference::adjust_logits>,                          \
    .logprobs = launch<kLogprobs, LogprobsParams, reference::logprobs>,                                            \
    .draft = launch<kDraft, DraftParams, reference::draft>,                                                        \
    .zero_rows = launch<kZeroRows, ZeroRowsParams, reference::zero_rows>,                                          \
    .matmul_scratch_bytes = ns::matmul_scratch_bytes, .attention_scratch_bytes = ns::attention_scratch_bytes,      \
    .sample_scratch_bytes = ns::sample_scratch_bytes, .supports_weight = supports_weight,                          \
    .supports_heads = supports_heads,                                                                              \
  }

const OpTable kReference = BZ_TABLE_("reference", reference);

#if defined(BZ_OPS_X86)
const OpTable kAvx2 = BZ_TABLE_("avx2", avx2);
const OpTable kAvx512 = BZ_TABLE_("avx512-vnni", avx512);

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

const OpTable* table_by_name(std::string_view isa) {
  if (isa == kReference.isa) return &kReference;
#if defined(BZ_OPS_X86)
  if (isa == kAvx2.isa && has_avx2()) return &kAvx2;
  if (isa == kAvx512.isa && has_avx512()) return &kAvx512;
#endif
  return nullptr;
}

const OpTable* fastest_table() {
  for (const char* name : {"avx512-vnni", "avx2"}) {
    if (const OpTable* table = table_by_name(name)) return table;
  }
  return &kReference;
}

}  // namespace bz::ops::cpu
