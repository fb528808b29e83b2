// What a layer caches (LayerSpec) and which layers lie alike in the blocks of one table (GroupSpec). Plain values, no
// behaviour.
//
// A layer's part of a block is its page: one or two planes of `block_size` entries each, the second right after the
// first. Attention: K[bs][Hkv][D] then V[bs][Hkv][D]. Latent fp8 formats: data rows, then scale rows. A recurrent
// layer: conv window, then state, one entry. A layer that keeps several caches has several LayerSpecs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/math.h"
#include "kv/slot.h"
#include "kv/types.h"

namespace bz::kv {

enum class CacheKind : uint8_t {
  kFull,           // every token, for ever; latent (MLA) and indexer entries too
  kSlidingWindow,  // the last `window` tokens, the query's own included
  kChunkedLocal,   // the query's own chunk of `window` tokens
  kCompressed,     // one entry per `ratio` tokens, for ever
  kRing,           // the last few tokens in one block per request: open windows of a compressor or indexer
  kState,          // one state per request, and one more per speculated token
  kCross,          // the encoder's tokens, allocated once
  kSink,           // full, behind sink entries that all requests share
};

constexpr std::string_view cache_kind_name(CacheKind kind) {
  constexpr std::string_view names[] = {"full", "sliding_window", "chunked_local", "compressed",
                                        "ring", "state",          "cross",         "sink"};
  return names[static_cast<size_t>(kind)];
}

struct LayerSpec {
  CacheKind kind = CacheKind::kFull;
  int32_t layer = 0;                     // of the model
  std::array<int64_t, 2> entry_bytes{};  // one entry in the first plane (K) and in the second (V; 0: there is none)
  int32_t window = 0;         // kSlidingWindow: tokens a query sees, itself included; kChunkedLocal: tokens in a chunk
  int32_t ratio = 1;          // kCompressed, kRing: tokens pooled into one entry (R)
  int32_t capacity = 0;       // kRing: entries
  bool snapshot = false;      // kState, kRing: a prefix hit needs its bytes at the hit's exact position
  int32_t sink_tokens = 0;    // kSink
  int32_t page_multiple = 1;  // bytes: a rule of the entry format on top of KV-5
  bool zeroed = false;        // its kernels read a block before they have written all of it: new ones are zeroed (KV-4)

  bool operator==(const LayerSpec&) const = default;
};

// Keys and values of attention: num_kv_heads heads of head_dim elements each.
constexpr LayerSpec attention_layer(int32_t layer, int32_t num_kv_heads, int32_t head_dim, DType dtype) {
  const int64_t bytes = row_bytes(dtype, static_cast<int64_t>(num_kv_heads) * head_dim);
  return {CacheKind::kFull, layer, {bytes, bytes}};
}

// Entry formats of latent attention and of its indexer.
enum class LatentFormat : uint8_t {
  kBf16,    // 512 latent + 64 rope, bf16: 1152 bytes
  kFp8,     // 512 e4m3 | 4 fp32 scales | 64 bf16: 656 bytes
  kFp8V4,   // rows of 448 e4m3 | 64 bf16 (576), then rows of 8 scale bytes; pages in multiples of 576
  kFp8V41,  // rows of 512 e4m3, then rows of 16 scale bytes; pages in multiples of 512
  kIndex,   // 128 fp8 keys, then one fp32 scale each: 132 bytes
};
constexpr LayerSpec latent_layer(int32_t layer, LatentFormat format) {
  LayerSpec spec{CacheKind::kFull, layer};
  switch (format) {
    case LatentFormat::kBf16: spec.entry_bytes = {1152, 0}; break;
    case LatentFormat::kFp8: spec.entry_bytes = {656, 0}; break;
    case LatentFormat::kFp8V4: spec.entry_bytes = {576, 8}, spec.page_multiple = 576; break;
    case LatentFormat::kFp8V41: spec.entry_bytes = {512, 16}, spec.page_multiple = 512; break;
    case LatentFormat::kIndex: spec.entry_bytes = {128, 4}; break;
  }
  return spec;
}
// The same entries, one per `ratio` tokens.
constexpr LayerSpec compressed(LayerSpec spec, int32_t ratio) {
  spec.kind = CacheKind::kCompressed;
  spec.ratio = ratio;
  return spec;
}
// The same entries, of the last `window` tokens only.
constexpr LayerSpec windowed(LayerSpec spec, int32_t window) {
  spec.kind = CacheKind::kSlidingWindow;
  spec.window = window;
  return spec;
}

// Capacities of the known rings for verify steps of 1 + num_spec tokens (RING-1). R tokens close a window; a row needs
// the R - 1 before the step, those of the window before too where windows overlap, and the step's own.
constexpr int32_t compressor_ring_v41(int32_t num_spec) {  // DeepSeek-V4.1, R = 2
  const int32_t rows = next_pow2(num_spec + 2);
  return rows < 8 ? 8 : rows;
}
constexpr int32_t pool_ring(int32_t ratio, int32_t num_spec) { return round_up(ratio + num_spec, ratio); }  // GLM-5.3
constexpr int32_t qsa_ring(int32_t ratio, int32_t num_spec, int32_t attention_block_size) {                 // Qwen4
  int32_t capacity = pool_ring(ratio, num_spec);
  while (capacity < attention_block_size && attention_block_size % capacity != 0) capacity += ratio;
  return capacity;
}
constexpr int32_t compressor_ring_v4(int32_t ratio, bool overlap, int32_t num_spec) {  // DeepSeek-V4
  return (overlap ? 2 : 1) * ratio + num_spec;
}
constexpr LayerSpec ring_layer(int32_t layer, int32_t ratio, int32_t capacity, std::array<int64_t, 2> entry_bytes,
                               bool overlap = false) {
  return {CacheKind::kRing, layer, entry_bytes, 0, ratio, capacity, overlap};
}

// A recurrent layer: bytes of its convolution window and of its state.
constexpr LayerSpec state_layer(int32_t layer, int64_t conv_bytes, int64_t state_bytes) {
  return {CacheKind::kState, layer, {conv_bytes, state_bytes}, 0, 1, 0, true};
}

inline constexpr int32_t kOwnTable = -1;

struct GroupSpec {
  CacheKind kind = CacheKind::kFull;
  int32_t block_size = 0;       // entries in a block; kRing: the capacity; kState: 1
  int32_t window = 0;           // as in LayerSpec
  std::vector<int32_t> layers;  // indices into the list of LayerSpecs
  int32_t ratio = 1;            // as in LayerSpec
  bool snapshot = false;        // as in LayerSpec
  int32_t sink_tokens = 0;      // as in LayerSpec
  int32_t cp_world = 1;         // context parallel, kFull only: as in GroupView
  int32_t cp_rank = 0;
  int32_t cp_interleave = 1;
  bool zeroed = false;  // as in LayerSpec
  // The group whose blocks hold this one's entries too, and whose table it reads: pooled keys beside the latents they
  // index, rings beside a state. kOwnTable: none; such groups come first.
  int32_t table_of = kOwnTable;

  bool operator==(const GroupSpec&) const = default;
};

// The group whose table a group reads: its own, or another's.
constexpr GroupId table_of(const GroupSpec& spec, GroupId group) {
  return spec.table_of == kOwnTable ? group : GroupId(spec.table_of);
}

constexpr SlotForm slot_form(CacheKind kind) {
  switch (kind) {
    case CacheKind::kFull:
    case CacheKind::kSink: return SlotForm::kTokens;
    case CacheKind::kSlidingWindow:
    case CacheKind::kChunkedLocal: return SlotForm::kWindowed;
    case CacheKind::kCompressed: return SlotForm::kCompressed;
    case CacheKind::kRing: return SlotForm::kRing;
    case CacheKind::kState: return SlotForm::kState;
    case CacheKind::kCross: return SlotForm::kCross;
  }
  return SlotForm::kTokens;
}

}  // namespace bz::kv
