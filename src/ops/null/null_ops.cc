#include "ops/null/null_ops.h"

#include "device/null/null_stream.h"
#include "ops/cpu/prepare_step.h"
#include "ops/cpu/sample_finish.h"

namespace bz::ops::null {
namespace {

void prepare(device::Stream& stream, const PrepareParams& params) {
  device::null::enqueue(stream, params, &cpu::prepare_step);
}

RowResult sample_row(const SampleParams& p, int64_t b) {
  if (!cpu::samples_live(p.view, b) || p.sample_row[b] == 0) return {kTokenNone, 0.0f};
  const RowSampling& s = p.sampling[b];
  const uint32_t index = s.first_output + p.row_state[p.view.row_index[b]].num_sampled;
  return {token_of(s.seed, index, p.logits.cols), 0.0f};
}

void sample_rows(const SampleParams& p) {
  cpu::finish_header(p);
  for (int64_t b = 0; b < p.view.padded_rows; ++b) cpu::finish_row(p, b, sample_row(p, b));
}

void sample(device::Stream& stream, const SampleParams& params) { device::null::enqueue(stream, params, &sample_rows); }

template <class Params>
void nothing(device::Stream&, const Params&) {}

}  // namespace

int32_t token_of(uint64_t seed, uint32_t index, int32_t vocab_size) {
  uint64_t z = seed + (uint64_t{index} + 1) * 0x9e3779b97f4a7c15u;  // splitmix64
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return static_cast<int32_t>((z ^ z >> 31) % static_cast<uint64_t>(vocab_size));
}

const OpTable& table() {
  static const OpTable kTable{
      .isa = "null",
      .copy_blocks = nothing<CopyBlocksParams>,
      .prepare = prepare,
      .embed = nothing<EmbedParams>,
      .rms_norm = nothing<RmsNormParams>,
      .matmul = nothing<MatmulParams>,
      .rope_table = nothing<RopeTableParams>,
      .rope_store = nothing<RopeStoreParams>,
      .attention = nothing<AttentionParams>,
      .silu_mul = nothing<SiluMulParams>,
      .gather_rows = nothing<GatherRowsParams>,
      .sample_greedy = sample,
      .sample_random = sample,
      .adjust_logits = nothing<AdjustLogitsParams>,
      .logprobs = nothing<LogprobsParams>,
      .matmul_scratch_bytes = [](int32_t, int32_t) { return size_t{0}; },
      .attention_scratch_bytes = [](int32_t, int32_t, int32_t) { return size_t{0}; },
      .sample_scratch_bytes = [](int32_t, int32_t) { return size_t{0}; },
      .supports_weight = [](DType) { return true; },
      .supports_heads = [](int32_t, int32_t, int32_t) { return true; },
  };
  return kTable;
}

}  // namespace bz::ops::null
