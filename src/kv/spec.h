// What a layer caches (LayerSpec) and which layers share a block table (GroupSpec). Plain values, no behaviour.
//
// A layer's part of a block is its page: one or two planes of `block_size` entries each, the second right after the
// first. Attention: K[bs][Hkv][D] then V[bs][Hkv][D]. A layer that keeps several caches has several LayerSpecs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kv/types.h"

namespace bz::kv {

enum class CacheKind : uint8_t {
  kFull,           // every token, for ever
  kSlidingWindow,  // the last `window` tokens, the query's own included
};

constexpr std::string_view cache_kind_name(CacheKind kind) {
  switch (kind) {
    case CacheKind::kFull: return "full";
    case CacheKind::kSlidingWindow: return "sliding_window";
  }
  return "?";
}

struct LayerSpec {
  CacheKind kind = CacheKind::kFull;
  int32_t layer = 0;                     // of the model
  std::array<int64_t, 2> entry_bytes{};  // one entry in the first plane (K) and in the second (V; 0: there is none)
  int32_t window = 0;                    // kSlidingWindow: tokens a query sees, itself included

  bool operator==(const LayerSpec&) const = default;
};

// Keys and values of attention: num_kv_heads heads of head_dim elements each.
constexpr LayerSpec attention_layer(int32_t layer, int32_t num_kv_heads, int32_t head_dim, DType dtype) {
  const int64_t bytes = row_bytes(dtype, static_cast<int64_t>(num_kv_heads) * head_dim);
  return {CacheKind::kFull, layer, {bytes, bytes}};
}
constexpr LayerSpec window_layer(int32_t layer, int32_t num_kv_heads, int32_t head_dim, DType dtype, int32_t window) {
  LayerSpec spec = attention_layer(layer, num_kv_heads, head_dim, dtype);
  spec.kind = CacheKind::kSlidingWindow;
  spec.window = window;
  return spec;
}

struct GroupSpec {
  CacheKind kind = CacheKind::kFull;
  int32_t block_size = 0;       // entries in a block
  int32_t window = 0;           // as in LayerSpec
  std::vector<int32_t> layers;  // indices into the list of LayerSpecs

  bool operator==(const GroupSpec&) const = default;
};

}  // namespace bz::kv
