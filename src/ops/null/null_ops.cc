#include "ops/null/null_ops.h"

#include <cstring>

#include "base/check.h"
#include "device/null/null_stream.h"
#include "ops/cpu/prepare_step.h"
#include "ops/cpu/sample_rows.h"

namespace bz::ops::null {
namespace {

void prepare(device::Stream& stream, const PrepareParams& params) {
  device::null::enqueue(stream, params, &cpu::prepare_step);
}

uint32_t next_output(const RowSampling* sampling, const RowState* row_state, const StepView& view, int64_t b) {
  return sampling[b].first_output + row_state[view.row_index[b]].num_sampled;
}

void sample_rows(const SampleParams& p) {
  finish_header(p);
  for (int64_t b = 0; b < p.view.padded_rows; ++b) {
    cpu::sample_row(p, b, [&](int64_t row, int32_t i, int32_t) {
      const uint32_t output = next_output(p.sampling, p.row_state, p.view, row) + static_cast<uint32_t>(i);
      return RowResult{token_of(p.sampling[row].seed, output, p.logits.cols), 0.0f};
    });
  }
}

// What comes next three times out of four, so that every number of accepted drafts occurs.
int32_t guess_of(uint64_t seed, uint32_t output, int32_t vocab_size) {
  const int32_t token = token_of(seed, output, vocab_size);
  return token_of(~seed, output, 4) == 0 ? (token + 1) % vocab_size : token;
}

void draft_rows(const DraftParams& p) {
  for (int64_t b = 0; b < p.view.padded_rows; ++b) {
    if (num_samples(p.view, p.sample_row, b) == 0) continue;
    RowDraft& draft = p.drafts[p.view.row_index[b]];
    const uint32_t output = next_output(p.sampling, p.row_state, p.view, b);
    draft.count = static_cast<int32_t>(output) % (p.max_tokens + 1);  // none, sometimes
    for (int32_t i = 0; i < draft.count; ++i) {
      draft.tokens[i] = guess_of(p.sampling[b].seed, output + static_cast<uint32_t>(i), p.vocab_size);
    }
  }
}

void draft(device::Stream& stream, const DraftParams& params) { device::null::enqueue(stream, params, &draft_rows); }

void sample(device::Stream& stream, const SampleParams& params) { device::null::enqueue(stream, params, &sample_rows); }

void copy_step(const CopyBlocksParams& p) {
  const StagedSlot& slot = p.ring[*p.step_count % PrepareParams::kRingSlots];
  if (slot.header->sequence != *p.step_count + 1) return;  // prepare will say so (PAD-10)
  for (int32_t i = 0; i < slot.header->num_copies; ++i) {
    const kv::BlockCopy& c = slot.copies[i];
    BZ_CHECK(c.to != kv::kNullBlock);  // PAD-1
    std::memcpy(p.base + c.to.value() * p.block_stride, p.base + c.from.value() * p.block_stride,
                static_cast<size_t>(p.block_stride));
  }
}

void copy_blocks(device::Stream& stream, const CopyBlocksParams& params) {
  device::null::enqueue(stream, params, &copy_step);
}

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
      .copy_blocks = copy_blocks,
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
      .draft = draft,
      .zero_rows = nothing<ZeroRowsParams>,
      .matmul_scratch_bytes = [](int32_t, int32_t) { return size_t{0}; },
      .attention_scratch_bytes = [](int32_t, int32_t, int32_t) { return size_t{0}; },
      .sample_scratch_bytes = [](int32_t, int32_t) { return size_t{0}; },
      .supports_weight = [](DType) { return true; },
      .supports_heads = [](int32_t, int32_t, int32_t) { return true; },
  };
  return kTable;
}

}  // namespace bz::ops::null
