// OpTable: a backend is a table of functions. Each enqueues one op on a stream (or records it during a capture).
#pragma once

#include <string_view>

#include "device/device.h"
#include "ops/params.h"

namespace bz::ops {

// What a step's sampling graph can do. Greedy steps never sort the vocabulary.
enum class SamplerClass : int32_t {
  kGreedy,
  kRandom,
  kFull,  // adjust_logits, sample_random, logprobs
};

struct OpTable {
  std::string_view isa;  // what runs: "reference", "avx2", "avx512-vnni", "sm_90a"

  void (*copy_blocks)(device::Stream&, const CopyBlocksParams&);
  void (*prepare)(device::Stream&, const PrepareParams&);
  void (*embed)(device::Stream&, const EmbedParams&);
  void (*rms_norm)(device::Stream&, const RmsNormParams&);
  void (*matmul)(device::Stream&, const MatmulParams&);
  void (*rope_table)(device::Stream&, const RopeTableParams&);
  void (*rope_store)(device::Stream&, const RopeStoreParams&);
  void (*attention)(device::Stream&, const AttentionParams&);
  void (*silu_mul)(device::Stream&, const SiluMulParams&);
  void (*gather_rows)(device::Stream&, const GatherRowsParams&);
  void (*sample_greedy)(device::Stream&, const SampleParams&);
  void (*sample_random)(device::Stream&, const SampleParams&);
  void (*adjust_logits)(device::Stream&, const AdjustLogitsParams&);
  void (*logprobs)(device::Stream&, const LogprobsParams&);
  void (*draft)(device::Stream&, const DraftParams&);
  void (*zero_rows)(device::Stream&, const ZeroRowsParams&);

  // Fused forms; nullptr: the backend has none, and the parts are enqueued one by one.
  void (*norm_qkv)(device::Stream&, const NormQkvParams&) = nullptr;
  void (*norm_gate_up)(device::Stream&, const NormGateUpParams&) = nullptr;
  // Asked first whether it can do such logits.
  void (*norm_logits)(device::Stream&, const NormLogitsParams&) = nullptr;
  bool (*supports_norm_logits)(const NormLogitsParams&) = nullptr;

  // Called while starting, for all products of a model and all numbers of tokens that steps will have: chooses and
  // loads what a step, or its capture, may not. nullptr: nothing to do.
  void (*prepare_products)(device::Stream&, const ProductsParams&) = nullptr;

  // Scratch of a matmul with `tokens` input rows of `k` columns, or of a fused form of one.
  size_t (*matmul_scratch_bytes)(int32_t tokens, int32_t k);
  // Scratch of attention over at most `max_position` positions. May be given less, or none: then long rows are slower.
  size_t (*attention_scratch_bytes)(int32_t num_heads, int32_t head_dim, int32_t max_position);
  size_t (*sample_scratch_bytes)(int32_t rows, int32_t vocab);
  // May the weight type be used by matmul and embed? Otherwise the model is refused at load.
  bool (*supports_weight)(DType dtype);
  // Its rows are multiples of this many elements. Likewise.
  int32_t weight_row_unit = 1;
  // May attention have such heads? Likewise.
  bool (*supports_heads)(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim);
};

// The table of a device's backend. CPU: the fastest instruction set this machine has, or the one that BLOCKZERO_ISA
// names (reference, avx2, avx512-vnni); an unknown or unavailable name is an error. batch_invariant: with PAD-9b, which
// the CPU's ops always have and the CUDA ops have at a price.
Result<const OpTable*> op_table_for(device::DeviceKind kind, bool batch_invariant = false);

}  // namespace bz::ops
