// Parameters of every op: plain structs, a shape in every comment. The CPU and the CUDA launchers take the same ones.
//
// Letters: T padded tokens, R padded rows, L padded logits rows, D hidden size, H query heads, Hkv KV heads, hd head
// dimension, I intermediate size, V vocabulary, K input columns and N output columns of a matrix product.
//
// Every op writes the whole padded extent of its outputs; entries past num_valid_* are zeros (PAD-5), and no entry's
// bits depend on them (PAD-9a). On the CPU no bit of a row depends on its batch mates, its place, the padded size, the
// chunking of its prompt or the number of threads (PAD-9b).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/step_state.h"

namespace bz::ops {

// A row-major matrix view. Does not own.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int32_t rows = 0;
  int32_t cols = 0;
  int64_t row_stride = 0;  // elements

  template <class T>
  BZ_HD T* row(int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
};
inline TensorRef tensor_f32(void* data, int32_t rows, int32_t cols) { return {data, DType::kF32, rows, cols, cols}; }

// A weight matrix [N, K] as it lies in the model file: N rows of row_bytes(dtype, K) bytes, block-quantised along K.
struct Weight {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int32_t n = 0;
  int32_t k = 0;
};

// How many rows of a matrix are real: of tokens, batch rows or logits rows, on the device. For ops that treat every row
// alone and so do not care which; an op that mixes rows takes one of the types instead (PAD-6).
class ValidCount {
 public:
  ValidCount() = default;
  BZ_HD ValidCount(const kv::NumValidRows* rows) : rows_(rows) {}          // NOLINT(google-explicit-constructor)
  BZ_HD ValidCount(const kv::NumValidTokens* tokens) : tokens_(tokens) {}  // NOLINT(google-explicit-constructor)
  BZ_HD ValidCount(const NumValidLogits* logits) : logits_(logits) {}      // NOLINT(google-explicit-constructor)
  BZ_HD int32_t get() const {
    if (rows_ != nullptr) return rows_->value();
    return tokens_ != nullptr ? tokens_->value() : logits_->value();
  }

 private:
  const kv::NumValidRows* rows_ = nullptr;
  const kv::NumValidTokens* tokens_ = nullptr;
  const NumValidLogits* logits_ = nullptr;
};

// One layer's K and V pages (kv/layout): entry = [Hkv][hd] elements of dtype.
struct KvLayer {
  std::byte* base = nullptr;  // of the slabs (block 0)
  kv::PageView k;
  kv::PageView v;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  DType dtype = DType::kF16;
};

// First node of a step: counts the step, checks the staged sequence, applies table changes, derives the step view.
struct PrepareParams {
  // Inputs.
  static constexpr int kRingSlots = 3;
  StagedSlot ring[kRingSlots];  // slot = step count % 3
  uint64_t* step_count;         // [1] device counter of steps prepared
  RowState* row_state;          // [num_table_rows]
  RowDraft* drafts;             // [num_table_rows]
  TokenHistory history;
  int32_t num_table_rows;
  // Mutable tables, the same memory that view.groups[g].view shows. [group]
  kv::BlockId* tables[kv::kMaxGroups];  // [num_table_rows][max_blocks_per_row]
  int32_t* widths[kv::kMaxGroups];      // [num_table_rows]
  int32_t* firsts[kv::kMaxGroups];      // [num_table_rows]
  // Outputs. The arrays of `view` are written through these.
  StepView view;
  RowSampling* sampling;          // [R]
  int32_t* sample_row;            // [R] how many of the row's last logits rows it samples from
  int32_t* next_token;            // [R] as staged
  StepResultHeader* error_state;  // [1] sequence and error of this step, copied into the results by sample
};

// Copies whole slabs before a step reads or writes them: a fork's open blocks (KV-6), and zeros from the null block
// (KV-4). Runs ahead of prepare, on the staging slot of the step that prepare will count next; if that slot holds
// another step it copies nothing, and prepare says so (PAD-10). The copies of a step may run in any order.
struct CopyBlocksParams {
  StagedSlot ring[PrepareParams::kRingSlots];
  const uint64_t* step_count;  // [1] steps prepared so far
  std::byte* base;             // of the slabs (block 0)
  int64_t block_stride;        // bytes
  int32_t num_blocks;          // with the null block
};

// out[t] = row token_ids[t] of weight, as f32; zeros for padding. weight [V, D], out [T, D].
struct EmbedParams {
  const int32_t* token_ids;  // [T]
  Weight weight;
  TensorRef out;
  ValidCount num_valid;
};

// out = weight * x / sqrt(mean(x^2) + eps) per row (RMSNorm, Zhang and Sennrich 2019). x, out [T, D]; weight f32 [D].
struct RmsNormParams {
  TensorRef x;
  const float* weight;
  TensorRef out;
  float eps;
  ValidCount num_valid;  // rows of x past it are padding
};

// For each part: out = x * weight^T, or out += x * weight^T if accumulate. x f32 [T, K]; weight [N, K]; out f32 [T, N].
// Several weights share one input (q, k, v; gate, up). `scratch` holds what the backend makes of its inputs and of its
// sums on the way: matmul_scratch_bytes(). None (on CUDA alone): slower kernels, whose sums differ in the last places.
struct MatmulPart {
  Weight weight;
  TensorRef out;
};
struct MatmulParams {
  static constexpr int kMaxParts = 3;
  TensorRef x;
  MatmulPart parts[kMaxParts];
  int32_t num_parts;
  int32_t accumulate;  // 1: padding rows of out are left at zero, not added to
  void* scratch;
  size_t scratch_bytes;
  ValidCount num_valid;
};

// cos_sin[t] = {cos(pos * inv_freq[i])} for i < hd/2, then {sin(...)}. Computed once a step in float64, stored f32.
struct RopeTableParams {
  const int32_t* positions;  // [T]
  const double* inv_freq;    // [hd / 2]
  TensorRef cos_sin;         // f32 [T, hd]: cos [hd/2] then sin [hd/2]
  ValidCount num_valid;
};

enum class RopeStyle : int32_t {
  kAdjacentPairs,  // pairs (2i, 2i + 1): GGUF files of architecture llama
  kHalfSplit,      // pairs (i, i + hd/2): NeoX
};

// Rotates q in place; rotates k and stores k and v into the cache at slots[t] (RoPE, Su et al. 2021).
// A token with kPadSlot stores nothing. q f32 [T, H*hd], k and v f32 [T, Hkv*hd].
struct RopeStoreParams {
  TensorRef q;
  TensorRef k;
  TensorRef v;
  TensorRef cos_sin;  // [T, hd]
  RopeStyle style;
  const kv::SlotId* slots;  // [T]
  KvLayer layer;
  ValidCount num_valid;
};

// Causal paged attention of the tokens of this step over the cache, grouped-query. out[t, h] = softmax(scale * q k) v
// over positions [first_visible(row), position(t)]. A row with seq_len 0 reads nothing and writes zeros (PAD-5); null
// blocks and slots past the token's position are skipped, never clamped (PAD-7). KV is split at absolute positions
// (PAD-9b). q, out f32 [T, H*hd].
struct AttentionParams {
  TensorRef q;
  TensorRef out;
  int32_t num_heads;
  float scale;
  int32_t group;  // index into view.groups
  KvLayer layer;
  StepView view;
  // Partial results, so that several workers share one long row: attention_scratch_bytes(). May be null; no bit of the
  // result depends on it.
  void* scratch;
  size_t scratch_bytes;
};

// out = silu(gate) * up. gate, up, out f32 [T, I]; out may be gate.
struct SiluMulParams {
  TensorRef gate;
  TensorRef up;
  TensorRef out;
  ValidCount num_valid;
};

// Fused forms (OpTable says whether a backend has them); the weights of one op have one type.

// rms_norm, the q, k and v products, rope_store: q_out = the rotated queries; k and v go into the cache alone.
// x f32 [T, D]; q_out f32 [T, H*hd].
struct NormQkvParams {
  TensorRef x;
  const float* norm_weight;  // [D]
  float eps;
  Weight q;
  Weight k;
  Weight v;
  TensorRef q_out;
  TensorRef cos_sin;  // [T, hd]
  RopeStyle style;
  const kv::SlotId* slots;  // [T]
  KvLayer layer;
  ValidCount num_valid;
  void* scratch;  // as matmul's
  size_t scratch_bytes;
};

// rms_norm, the gate and up products, silu_mul. x f32 [T, D]; out f32 [T, I].
struct NormGateUpParams {
  TensorRef x;
  const float* norm_weight;  // [D]
  float eps;
  Weight gate;
  Weight up;
  TensorRef out;
  ValidCount num_valid;
  void* scratch;  // as matmul's
  size_t scratch_bytes;
};

// The weights that one of these ops multiplies by, in the order of its parameters.
struct ProductsParams {
  enum class Op : int32_t { kMatmul, kNormQkv, kNormGateUp };
  Op op;
  Weight weights[MatmulParams::kMaxParts];
  int32_t num_weights;
  int32_t tokens;  // T
  void* scratch;   // as the op will get
  size_t scratch_bytes;
};

// out[l] = x[index[l]], zeros where index[l] is -1. x f32 [T, D], out f32 [L, D].
struct GatherRowsParams {
  TensorRef x;
  const int32_t* index;  // [L]
  TensorRef out;
};

// gather_rows, rms_norm and one product: out[l] = weight * norm(x[index[l]]), zeros where index[l] is -1.
// x f32 [T, D]; out f32 [L, V].
struct NormLogitsParams {
  TensorRef x;
  const int32_t* index;      // [L]
  const float* norm_weight;  // [D]
  float eps;
  Weight weight;
  TensorRef out;
  ValidCount num_valid;  // rows of out past it are padding
};

// adjusted[b] = the logits that batch row b samples from: its last logits row, changed in this order.
//
//   min_tokens          -infinity for the masked ids while the output index is below min_tokens
//   logit_bias          + bias (OpenAI)
//   repetition_penalty  of every token in the prompt or the outputs so far: logit / penalty if it is above 0, else
//                       logit * penalty (Keskar et al. 2019, as Hugging Face's RepetitionPenaltyLogitsProcessor)
//   frequency_penalty   - penalty * how often the token is among the outputs so far (OpenAI)
//   presence_penalty    - penalty if it is among the outputs so far (OpenAI)
//
// The order is vLLM's. "So far" is up to the logits row's token, by the token history. In f32, rounded after each
// operation, the same on every backend. Rows without adjustments are copied; rows that do not sample become zeros.
struct AdjustLogitsParams {
  TensorRef logits;    // f32 [L, V]
  TensorRef adjusted;  // f32 [R, V]
  StepView view;
  const RowSampling* sampling;  // [R]
  const int32_t* sample_row;    // [R]
  TokenHistory history;
  const uint64_t* step_count;  // [1]
  StagedSlot ring[PrepareParams::kRingSlots];
  int32_t* counts;  // scratch [R, V]
};

// Zeros in the rows of out that belong to an empty batch row (PAD-5), the others left alone: after a kernel that is not
// ours and leaves something there (ops/foreign). out [N, C] of a plain type, rows of a multiple of 16 bytes, 16-byte
// aligned; row n belongs to batch row token_row[n], or is batch row n if token_row is null.
struct ZeroRowsParams {
  TensorRef out;
  const int32_t* seq_len;    // [R]
  const int32_t* token_row;  // [N] or null; -1: none
};

// Samples the tokens of every row that asks for some, writes RowState, the token history and the results
// (sample_finish.h). logits f32 [L, V]. Random numbers are keyed by (seed, output index), never by place or batch
// (PAD-9b).
struct SampleParams {
  static constexpr int kRingSlots = PrepareParams::kRingSlots;
  TensorRef logits;             // what the model says: log probabilities are of these
  TensorRef adjusted;           // [R, V] what rows without drafts sample from; no data: the logits themselves
  const RowSampling* sampling;  // [R]
  const int32_t* sample_row;    // [R]
  StepView view;
  RowState* row_state;  // [num_table_rows]
  TokenHistory history;
  const uint64_t* step_count;           // [1] result slot = step count % 3, as prepare's
  const StepResultHeader* error_state;  // [1]
  StepResultHeader* result_headers[kRingSlots];
  RowResult* results[kRingSlots];    // [R][samples_per_row] each
  int32_t* logits_ends[kRingSlots];  // [R] each: view.logits_start[b + 1], which the host may have planned higher
  void* scratch;                     // [R] sort spaces of kRandom: sample_scratch_bytes()
  size_t scratch_bytes;

  // The logits of sample i of n of batch row b, and what it is drawn from. REQUIRES: i < n, the row has n logits rows.
  BZ_HD const float* logits_of(int64_t b, int32_t i, int32_t n) const {
    return logits.row<const float>(view.logits_start[b + 1] - n + i);
  }
  BZ_HD const float* choices_of(int64_t b, int32_t i, int32_t n) const {
    return adjusted.data != nullptr && n == 1 ? adjusted.row<const float>(b) : logits_of(b, i, n);
  }
};

// Proposes what follows each row's last token, for the next step to verify: after the last kMaxNgram tokens or fewer,
// at least kMinNgram, what followed the latest earlier place where they stand (prompt lookup decoding, Saxena 2023).
// Runs after sample. Rows that did not sample keep what they have.
struct DraftParams {
  static constexpr int32_t kMaxNgram = 4;
  static constexpr int32_t kMinNgram = 2;
  StepView view;
  const int32_t* sample_row;    // [R]
  const RowSampling* sampling;  // [R]
  const RowState* row_state;    // [num_table_rows]
  TokenHistory history;
  RowDraft* drafts;    // [num_table_rows]
  int32_t max_tokens;  // k, at most kMaxDraftTokens
  int32_t vocab_size;
};

// Log probabilities of every logits row whose batch row asks for some: of the token that follows and of the most likely
// ones. Runs after sample, whose results it reads.
struct LogprobsParams {
  TensorRef logits;             // f32 [L, V], unmodified
  const RowSampling* sampling;  // [R]
  const int32_t* sample_row;    // [R]
  const int32_t* next_token;    // [R]
  StepView view;
  const uint64_t* step_count;                                // [1]
  const RowResult* results[SampleParams::kRingSlots];        // [R][samples_per_row] each
  LogprobResult* logprob_results[SampleParams::kRingSlots];  // [L] each
};

}  // namespace bz::ops
